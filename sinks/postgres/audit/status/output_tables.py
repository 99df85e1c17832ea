"""The tables of a pipeline's outputs: how big, how fresh, and what came too late."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from psycopg import Connection
from psycopg.rows import DictRow, TupleRow

from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    AuditedOutput,
    fetch,
    read_pipeline,
    snapshot,
)
from tallyweir.sinks.postgres.server.naming import HOME
from tallyweir.sinks.postgres.server.statements import load_statements

_SQL = load_statements("tallyweir.sinks.postgres.audit.status", "output_tables.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputTable:
    """One output of a pipeline, over its newest batches.

    Attributes:
        databases: The databases that hold its table; each row is in only one of them.
        rows_estimated: The planner's estimate; None if the table is not in the home or
            was not analysed yet.
        bytes: Size with its indexes; None if the table is not in the home.
        events: Events that the newest batches gave it; ``rows``, ``late`` and
            ``revised`` count the same batches.
        last_sequence: The last of these batches that gave it rows.
        watermark: That batch's watermark: no event before it is expected any more.
        behind_s: Seconds from ``watermark`` to the clock of the home database.
    """

    table: str
    kind: str
    databases: tuple[str, ...]
    rows_estimated: int | None
    bytes: int | None
    events: int
    rows: int
    late: int
    revised: int
    last_sequence: int | None
    published_at: datetime | None
    watermark: datetime | None
    behind_s: float | None


def read_output_tables(
    connection: Connection[TupleRow], pipeline: str, *, newest: int
) -> tuple[OutputTable, ...]:
    """Read the outputs of a pipeline, in the order of its definition.

    Args:
        connection: To the home, outside a transaction. Nothing is written.
        pipeline: The pipeline's name.
        newest: How many batches to cover.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``.
        RetryableError: The server went away.
    """
    with snapshot(connection, doing="reading a pipeline's tables"):
        audited = read_pipeline(connection, pipeline)
        found = {
            row["output_table"]: row
            for row in fetch(
                connection,
                _SQL["newest_batches"],
                pipeline=pipeline,
                after=audited.last_sequence - newest,
            )
        }
        return tuple(
            _output_table(connection, output, found.get(output.table))
            for output in audited.outputs
        )


def _output_table(
    connection: Connection[TupleRow], output: AuditedOutput, added: DictRow | None
) -> OutputTable:
    sizes = []
    if HOME in output.databases and output.kind.has_table:
        sizes = fetch(connection, _SQL["size"], table=output.quoted(connection))
    size = sizes[0] if sizes else {"rows_estimated": None, "bytes": None}
    known = added or {}
    return OutputTable(
        table=output.table,
        kind=output.kind.name,
        databases=output.databases,
        rows_estimated=size["rows_estimated"],
        bytes=size["bytes"],
        events=known.get("events", 0),
        rows=known.get("rows", 0),
        late=known.get("late", 0),
        revised=known.get("revised", 0),
        last_sequence=known.get("last_sequence"),
        published_at=known.get("published_at"),
        watermark=known.get("watermark_after"),
        behind_s=known.get("behind_s"),
    )
