"""Finds where home and a participant disagree after a restore, and how to repair it.

This module only reads: it writes down what a person has to do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime

from psycopg import Connection, sql
from psycopg.rows import DictRow, TupleRow

from tallyweir.sinks.postgres.audit.audited_databases import (
    AuditedDatabase,
    AuditedDatabases,
    connect_databases,
    databases_of,
)
from tallyweir.sinks.postgres.audit.checks.branches import has_markers, read_marked
from tallyweir.sinks.postgres.audit.status.branches_in_doubt import list_prepared
from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    AuditedOutput,
    AuditedPipeline,
    read_pipeline,
    read_positions,
    snapshot,
)
from tallyweir.sinks.postgres.server.columns import table_identifier
from tallyweir.sinks.postgres.server.naming import branch_prefix, database_of
from tallyweir.sinks.postgres.server.sqlstate import translated
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.postgres.tables.foreign_code import keep_tables
from tallyweir.sinks.protocol.batch_run import streamed
from tallyweir.sinks.protocol.offsets import OffsetRange, TopicPartition

_SQL = load_statements("tallyweir.sinks.postgres.audit", "repair.sql")

_PAGE = 1_000
_EXAMPLES = 5
_NEVER = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchEntry:
    """A batch as one side records it: home's decision, or a participant's marker."""

    sequence: int
    gid: str
    #: When the batch was published, or when the marker was written.
    at: datetime
    #: Rows that the branch moved; home does not know them by branch.
    rows: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchHistory:
    """Both sides of one branch, after the newest batch on which they agree."""

    branch: str
    agreed: BranchEntry | None
    #: Markers for which home has no decision.
    only_marked: tuple[BranchEntry, ...]
    #: Decisions without a marker whose branch is not prepared either.
    only_decided: tuple[BranchEntry, ...]
    #: Decisions whose branch is still prepared: a resolver will commit it.
    in_doubt: tuple[BranchEntry, ...]

    @property
    def database(self) -> str:
        return database_of(self.branch)

    @property
    def code(self) -> str | None:
        """The error with which a driver stops; None if both sides agree."""
        if self.only_decided:
            return "PARTICIPANT_BEHIND"
        if self.only_marked:
            return "PARTICIPANT_AHEAD"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsBeyond:
    """Rows of an append table from offsets that home has not read yet."""

    database: str
    output: AuditedOutput
    rows: int
    examples: tuple[tuple[TopicPartition, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """Everything in which the databases of a pipeline differ."""

    pipeline: AuditedPipeline
    branches: tuple[BranchHistory, ...]
    #: Where home stands: the next offset of every partition that it knows.
    next_offsets: dict[TopicPartition, int]
    #: Rows in the databases that are ahead.
    rows_beyond: tuple[RowsBeyond, ...]
    #: Offsets of the batches that are missing from databases that are behind.
    missing: tuple[OffsetRange, ...]

    @property
    def ahead(self) -> tuple[BranchHistory, ...]:
        return tuple(b for b in self.branches if b.only_marked)

    @property
    def behind(self) -> tuple[BranchHistory, ...]:
        return tuple(b for b in self.branches if b.only_decided)

    @property
    def in_doubt(self) -> tuple[BranchEntry, ...]:
        return tuple(entry for b in self.branches for entry in b.in_doubt)


def find_disagreement(
    home: Connection[TupleRow], pipeline: str, conninfos: dict[str, str]
) -> Disagreement:
    """Compare the history of every branch of a pipeline on both sides.

    Drivers may work meanwhile: what they decide or commit during the comparison is
    checked again.

    Args:
        home: The home database.
        pipeline: The pipeline's name.
        conninfos: Where the other databases are, by name.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``, ``DATABASE_UNKNOWN``,
            ``FOREIGN_CODE``, or a login was refused.
        RetryableError: A database does not respond.
    """
    with snapshot(home, doing="reading a pipeline's definition"):
        audited = read_pipeline(home, pipeline)
        keep_tables(home, audited)
    with ExitStack() as opened:
        databases = connect_databases(opened, home, databases_of(audited), conninfos)
        for database in databases.by_name.values():
            database.connection.autocommit = True
        branches = tuple(
            history
            for branch in _branches(databases, audited)
            if (history := _compare(databases, audited, branch)) is not None
        )
        with translated("reading the positions"):
            next_offsets = read_positions(home, pipeline)
        return Disagreement(
            pipeline=audited,
            branches=branches,
            next_offsets=next_offsets,
            rows_beyond=_find_rows_beyond(
                databases,
                audited,
                beyond(audited, next_offsets),
                {b.database for b in branches if b.only_marked},
            ),
            missing=_find_missing(databases.home, audited, branches),
        )


def beyond(
    pipeline: AuditedPipeline, next_offsets: dict[TopicPartition, int]
) -> sql.Composable:
    """Write the condition on rows from offsets that home has not read yet.

    If home does not know a partition, all of its rows match. The condition leaves out
    what batch runs have read, so it matches no row of a pipeline that reads no topic.
    """
    by_topic: dict[str, dict[int, int]] = {t: {} for t in pipeline.source.topics}
    for place, offset in streamed(next_offsets).items():
        by_topic.setdefault(place.topic, {})[place.partition] = offset
    if not by_topic:
        return sql.SQL("false")
    return sql.SQL("\n  OR ").join(
        _beyond_in_topic(topic, known) for topic, known in sorted(by_topic.items())
    )


def _beyond_in_topic(topic: str, next_offsets: Mapping[int, int]) -> sql.Composable:
    cases = [
        _SQL["position_case"].format(
            partition=sql.Literal(partition), next_offset=sql.Literal(offset)
        )
        # CASE needs at least one branch.
        for partition, offset in sorted(next_offsets.items()) or [(0, 0)]
    ]
    return _SQL["positions_beyond"].format(
        topic=sql.Literal(topic), cases=sql.SQL(" ").join(cases)
    )


def _branches(databases: AuditedDatabases, pipeline: AuditedPipeline) -> list[str]:
    rows = databases.home.fetch(_SQL["decided_branches"], pipeline=pipeline.name)
    for database in databases.by_name.values():
        if has_markers(database):
            rows += database.fetch(_SQL["marked_branches"], **_scope(pipeline))
    names = {row["branch"] for row in rows}
    return sorted(name for name in names if database_of(name) in databases.by_name)


def _compare(
    databases: AuditedDatabases, pipeline: AuditedPipeline, branch: str
) -> BranchHistory | None:
    """Read a branch's history on both sides; None if neither side has one."""
    there = databases.by_name[database_of(branch)]
    # Read markers first: home has already decided every branch that is marked by now.
    agreed, only_marked = _read_fork(databases.home, there, pipeline, branch)
    decided = [
        BranchEntry(**row)
        for row in databases.home.fetch(
            _SQL["decisions_after"],
            pipeline=pipeline.name,
            branch=branch,
            after=agreed.sequence if agreed else 0,
        )
    ]
    # Then read what is prepared, then the markers again: a branch that was committed
    # in between wrote its marker before it stopped being prepared.
    prefix = branch_prefix(pipeline.installation, pipeline.number)
    prepared = {
        str(one.gid) for one in list_prepared(there.connection, there.name, prefix)
    }
    marked = read_marked(there, [entry.gid for entry in decided])
    unmarked = [entry for entry in decided if entry.gid not in marked]
    return BranchHistory(
        branch=branch,
        agreed=agreed,
        only_marked=only_marked,
        only_decided=tuple(e for e in unmarked if e.gid not in prepared),
        in_doubt=tuple(e for e in unmarked if e.gid in prepared),
    )


def _read_fork(
    home: AuditedDatabase,
    there: AuditedDatabase,
    pipeline: AuditedPipeline,
    branch: str,
) -> tuple[BranchEntry | None, tuple[BranchEntry, ...]]:
    """Go back from the newest marker to the first one that home has decided."""
    only_marked: list[BranchEntry] = []
    if not has_markers(there):
        return None, ()
    before = _NEVER
    while page := there.fetch(
        _SQL["markers_before"],
        **_scope(pipeline),
        branch=branch,
        before=before,
        page=_PAGE,
    ):
        decided = _decided(home, pipeline, page)
        for row in page:
            entry = BranchEntry(**row)
            if entry.gid in decided:
                return entry, tuple(reversed(only_marked))
            only_marked.append(entry)
        before = page[-1]["sequence"]
    return None, tuple(reversed(only_marked))


def _decided(
    home: AuditedDatabase, pipeline: AuditedPipeline, markers: Sequence[DictRow]
) -> set[str]:
    rows = home.fetch(
        _SQL["decided_sequences"],
        pipeline=pipeline.name,
        gids=[row["gid"] for row in markers],
    )
    return {row["gid"] for row in rows}


def _find_rows_beyond(
    databases: AuditedDatabases,
    pipeline: AuditedPipeline,
    positions: sql.Composable,
    ahead: Collection[str],
) -> tuple[RowsBeyond, ...]:
    found = []
    for name in sorted(ahead):
        database = databases.by_name[name]
        for output in pipeline.appends:
            if name not in output.databases:
                continue
            parts = {"table": output.identifier, "positions": positions}
            with (
                translated(f"counting rows in database {name}"),
                database.connection.transaction(),
            ):
                keep_tables(database.connection, pipeline, name)
                (counted,) = database.fetch(_SQL["count_rows"].format(**parts))
                examples = database.fetch(
                    _SQL["example_rows"].format(**parts, limit=sql.Literal(_EXAMPLES))
                )
            found.append(
                RowsBeyond(
                    database=name,
                    output=output,
                    rows=counted["rows"],
                    examples=tuple(
                        (
                            TopicPartition(row["kafka_topic"], row["kafka_partition"]),
                            row["kafka_offset"],
                        )
                        for row in examples
                    ),
                )
            )
    return tuple(found)


def _find_missing(
    home: AuditedDatabase,
    pipeline: AuditedPipeline,
    branches: Sequence[BranchHistory],
) -> tuple[OffsetRange, ...]:
    sequences = {entry.sequence for b in branches for entry in b.only_decided}
    rows = home.fetch(
        _SQL["offsets_of"], pipeline=pipeline.name, sequences=sorted(sequences)
    )
    return tuple(
        OffsetRange(
            topic_partition=TopicPartition(row["topic"], row["partition"]),
            from_offset=row["first"],
            until_offset=row["until"],
        )
        for row in rows
    )


def _scope(pipeline: AuditedPipeline) -> dict[str, object]:
    return {
        "installation": pipeline.installation,
        "pipeline_number": pipeline.number,
    }


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
