"""The results of a template's two runs: read, compared and reported."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any, TypeAlias

from psycopg import Connection, sql
from psycopg.rows import TupleRow

from tallyweir.services.dev.chaos.plan import ChaosOptions
from tallyweir.sinks.postgres.server.columns import table_identifier
from tallyweir.sinks.postgres.server.statements import load_statements

_SQL = load_statements("tallyweir.services.dev.chaos.templates", "results.sql")

#: What is compared in addition to the result tables.
_LEDGER_TABLES = (
    *("dead_letter", "duplicate_event", "late_event", "expired_event"),
    *("filtered_event", "replaced_row", "outbox", "keyed_state", "keyed_timer"),
    *("partition_progress", "watermark"),
)
#: Sums of doubles differ in their last digits when they are added in another order.
_RELATIVE = 1e-9
_ABSOLUTE = 1e-9
_TOLD = 5

Rows: TypeAlias = Sequence[tuple[Any, ...]]
Results: TypeAlias = Mapping[str, Rows]


def read_results(connection: Connection[TupleRow], pipeline: str) -> Results:
    """Read every result table and what the ledger keeps of events, by table."""
    given = {"pipeline": pipeline}
    found: dict[str, Rows] = {}
    for (table,) in connection.execute(_SQL["result_tables"], given).fetchall():
        columns = connection.execute(_SQL["result_columns"], {"table": table})
        found[table] = connection.execute(
            _SQL["result_rows"].format(
                columns=sql.SQL(", ").join(
                    sql.Identifier(column) for (column,) in columns.fetchall()
                ),
                table=table_identifier(table),
            )
        ).fetchall()
    for table in _LEDGER_TABLES:
        found[f"tallyweir.{table}"] = connection.execute(_SQL[table], given).fetchall()
    return found


def compare_results(undisturbed: Results, killed: Results) -> list[str]:
    """List all differences, a line each; numbers with fractions may differ a little.

    Args:
        undisturbed: The results as they should be.
        killed: The results of the killed run.
    """
    told = [
        f"{table}: only one of the runs has it"
        for table in sorted({*undisturbed} ^ {*killed})
    ]
    for table in sorted({*undisturbed} & {*killed}):
        told += _compare_table(table, undisturbed[table], killed[table])
    return told


def _compare_table(table: str, undisturbed: Rows, killed: Rows) -> list[str]:
    wanted, found = _by_exact_part(undisturbed), _by_exact_part(killed)
    counts = Counter({key: len(rows) for key, rows in wanted.items()})
    counts.subtract({key: len(rows) for key, rows in found.items()})
    told = [
        f"{'missing' if count > 0 else 'too many'} ({abs(count)}): {key}"
        for key, count in counts.items()
        if count
    ]
    told += [
        f"{key}: {was} became {became}"
        for key, rows in wanted.items()
        if not counts[key]
        for was, became in zip(sorted(rows), sorted(found[key]), strict=True)
        if not _are_close(was, became)
    ]
    shown = [f"{table}: {line}" for line in told[:_TOLD]]
    if len(told) > _TOLD:
        shown.append(f"{table}: and {len(told) - _TOLD} more")
    return shown


def _by_exact_part(rows: Rows) -> dict[str, list[tuple[float, ...]]]:
    """Group the inexact values of rows by the exact values of their row."""
    filed: defaultdict[str, list[tuple[float, ...]]] = defaultdict(list)
    for row in rows:
        exact = ["~" if _is_inexact(value) else value for value in row]
        inexact = tuple(float(value) for value in row if _is_inexact(value))
        filed[repr(exact)].append(inexact)
    return filed


def _is_inexact(value: object) -> bool:
    return isinstance(value, float | Decimal)


def _are_close(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return all(
        a == b or math.isclose(a, b, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE)
        for a, b in zip(one, other, strict=True)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateReport:
    """A finished trial of one template.

    Attributes:
        template: Its name.
        kills: Number of drivers killed in mid-batch.
        messages: Number of messages in the topic, with repeats and broken ones.
        undisturbed_batches: Number of batches of the undisturbed run.
        killed_batches: Number of batches of the killed run.
        rows: Number of rows compared, by table.
        differences: The differences between the two runs' tables, a line each.
        failed_checks: Checks of ``verify`` that failed in either run.
        seconds: Duration of the whole trial.
    """

    template: str
    kills: int
    messages: int
    undisturbed_batches: int
    killed_batches: int
    rows: dict[str, int]
    differences: tuple[str, ...]
    failed_checks: tuple[str, ...]
    seconds: float

    @property
    def verdict(self) -> str:
        """``ok`` or ``failed``; runs without any row have failed."""
        is_bad = self.differences or self.failed_checks or not sum(self.rows.values())
        return "failed" if is_bad else "ok"

    def as_json(self) -> dict[str, object]:
        """Return plain values."""
        return {
            "verdict": self.verdict,
            **asdict(self),
            "seconds": round(self.seconds, 1),
        }

    def __str__(self) -> str:
        return (
            f"{self.template}: {self.verdict}, {self.kills} kills, "
            f"{self.killed_batches} batches beside {self.undisturbed_batches}, "
            f"{sum(self.rows.values()):,} rows compared, {self.seconds:.0f} s"
        )


def as_markdown(
    reports: Sequence[TemplateReport],
    options: ChaosOptions,
    *,
    git: str,
    today: dt.date,
) -> str:
    """Return a page that says what was run and how it ended."""
    verdict = "ok" if all(one.verdict == "ok" for one in reports) else "failed"
    command = (
        f"./tallyweir chaos-templates {' '.join(one.template for one in reports)} "
        f"--kills {options.kills} --events {options.events} --seed {options.seed}"
    )
    lines = [
        f"# Ready pipelines under kills, {today:%Y-%m-%d}: {verdict}",
        "",
        f"`{command}`, at commit {git}, {sum(one.seconds for one in reports):,.0f} s.",
        "",
        "| Template | Verdict | Kills | Messages | Batches | Calm | Rows | Differ |",
        "|---|---|---|---|---|---|---|---|",
        *(
            f"| `{one.template}` | {one.verdict} | {one.kills} | {one.messages:,} | "
            f"{one.killed_batches} | {one.undisturbed_batches} | "
            f"{sum(one.rows.values()):,} | {len(one.differences)} |"
            for one in reports
        ),
        "",
        "| Template | Table | Rows |",
        "|---|---|---|",
        *(
            f"| `{one.template}` | `{table}` | {count:,} |"
            for one in reports
            for table, count in one.rows.items()
            if count
        ),
        *_findings(reports),
    ]
    return "\n".join(lines) + "\n"


def _findings(reports: Sequence[TemplateReport]) -> list[str]:
    found = [
        f"- `{one.template}`: {line}"
        for one in reports
        for line in (*one.differences, *one.failed_checks)
    ]
    return ["", *found] if found else []
