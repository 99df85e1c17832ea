"""Writes down how to repair a disagreement between home and its participants."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from psycopg import sql

from tallyweir.sinks.postgres.audit.repair import BranchHistory, Disagreement, beyond
from tallyweir.sinks.postgres.server.columns import table_identifier
from tallyweir.sinks.postgres.server.statements import load_statements

_SQL = load_statements("tallyweir.sinks.postgres.audit", "repair.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairStep:
    """One thing that a person has to do, in order.

    Attributes:
        text: The instruction.
        database: Where to run ``statements``; None if there are none.
        statements: One transaction; each line ends with the expected answer.
        command: What to type at a shell.
    """

    text: str
    database: str | None = None
    statements: str | None = None
    command: str | None = None


def repair_steps(found: Disagreement) -> tuple[RepairStep, ...]:
    """Tell what to do, so that the pipeline starts and ends at the right result.

    Missing batches come first: restoring them may take home back in time, and then
    more databases are ahead of it.
    """
    if not found.ahead and not found.behind:
        return ()
    name = found.pipeline.name
    steps = [
        RepairStep(text=f"Stop the driver of {name}, and start none until the end.")
    ]
    if found.in_doubt:
        steps.append(
            RepairStep(
                text="Finish what is in doubt.", command="tallyweir resolver --once"
            )
        )
    steps += _bring_back(found) if found.behind else _take_away(found)
    steps.append(
        RepairStep(
            text="Check again: the plan must be empty, or list what is left to do.",
            command=f"tallyweir repair {name} --plan",
        )
    )
    steps.append(
        RepairStep(
            text="Start the driver. It reads Kafka from home's offsets.",
            command=f"tallyweir run {name}.yaml",
        )
    )
    return tuple(steps)


def _bring_back(found: Disagreement) -> Iterator[RepairStep]:
    """Decided batches are missing: yield two ways to repair it; one is enough."""
    behind = found.behind
    databases = ", ".join(sorted({b.database for b in behind}))
    newest = max(entry.at for b in behind for entry in b.only_decided)
    first = min(entry.at for b in behind for entry in b.only_decided)
    lost = min(entry.sequence for b in behind for entry in b.only_decided)
    yield RepairStep(
        text=f"Either restore {databases} to a later point, at or after "
        f"{_time(newest)}: everything that is missing was prepared by then and is "
        "committed at the next start. If an operator rolled back a branch by "
        "hand, restore to just before that. Home stays as it is.",
    )
    ranges = ", ".join(str(one) for one in found.missing) or "none"
    yield RepairStep(
        text="Or restore home to just before the first batch that is missing, batch "
        f"{lost}: recovery_target_time = '{_time(first)}', "
        "recovery_target_inclusive = off. It then reads again, from Kafka, what was "
        f"read since; Kafka must still hold at least {ranges}. Every database that "
        "is not behind will be ahead of home: the next step says how to repair that.",
    )


def _take_away(found: Disagreement) -> Iterator[RepairStep]:
    """Home went back: the driver will read again the batches that home has lost."""
    for database in sorted({b.database for b in found.ahead}):
        ahead = [b for b in found.ahead if b.database == database]
        windows = [o for o in found.pipeline.windows if database in o.databases]
        if windows:
            tables = ", ".join(output.table for output in windows)
            first = min(entry.at for b in ahead for entry in b.only_marked)
            yield RepairStep(
                text=f"Restore {database} to before the first batch that home does not "
                f"know: recovery_target_time = '{_time(first)}', "
                "recovery_target_inclusive = off. Its windows are merged sums "
                f"({tables}), and no batch can be taken out of a sum."
            )
            continue
        yield RepairStep(
            text=f"Take the rows out of {database} that will come again, and the "
            "markers of their batches, in one transaction. Commit only if the counts "
            "are those in the comments.",
            database=database,
            statements=_deletion(found, database, ahead),
        )


def _deletion(
    found: Disagreement, database: str, ahead: Iterable[BranchHistory]
) -> str:
    positions = beyond(found.pipeline, found.next_offsets)
    lines = ["BEGIN;"]
    for rows in found.rows_beyond:
        if rows.database == database:
            statement = _SQL["delete_rows"].format(
                table=table_identifier(rows.output.table), positions=positions
            )
            lines.append(f"{statement.as_string()}  -- DELETE {rows.rows}")
    gids = [entry.gid for b in ahead for entry in b.only_marked]
    markers = _SQL["delete_markers"].format(
        installation=sql.Literal(found.pipeline.installation),
        pipeline_number=sql.Literal(found.pipeline.number),
        gids=sql.Literal(gids),
    )
    lines += [f"{markers.as_string()}  -- DELETE {len(gids)}", "COMMIT;"]
    return "\n".join(lines)


def _time(instant: datetime) -> str:
    return instant.isoformat(sep=" ", timespec="microseconds")
