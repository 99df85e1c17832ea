"""Finds the window rows that an event is in, by its time and its group.

Windows keep no IDs, so the caller must have read the event from Kafka again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from psycopg import Connection, sql
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    AuditedOutput,
    fetch,
    read_pipeline,
    snapshot,
)
from tallyweir.sinks.postgres.server.naming import HOME
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.postgres.tables.foreign_code import keep_tables
from tallyweir.sinks.protocol.offsets import OffsetRange, TopicPartition

_SQL = load_statements("tallyweir.sinks.postgres.audit.why", "window_rows.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRow:
    """A row of a window output.

    Attributes:
        by: What identifies its group, in the order of the output's columns.
        is_sure: Whether the event has all fields of ``by``. If not, the event is in one
            of several such rows.
    """

    table: str
    start: datetime
    end: datetime
    by: Mapping[str, object]
    is_sure: bool

    def told(self) -> str:
        """Describe the row in a sentence."""
        group = "".join(f", {name} {value!r}" for name, value in self.by.items())
        what = "It is in" if self.is_sure else "It may be in"
        return (
            f"{what} the row of {self.table} with window_start "
            f"{self.start.isoformat(sep=' ')}, window_end "
            f"{self.end.isoformat(sep=' ')}{group}."
        )


def read_batch_ranges(
    connection: Connection[TupleRow], pipeline: str, sequence: int
) -> tuple[OffsetRange, ...]:
    """Return what a batch has read from Kafka's topics, in a snapshot of its own.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``.
        RetryableError: The server went away.
    """
    with snapshot(connection, doing="reading the ranges of a batch"):
        rows = fetch(
            connection, _SQL["batch_ranges"], pipeline=pipeline, sequence=sequence
        )
    return tuple(
        OffsetRange(
            topic_partition=TopicPartition(row["topic"], row["partition"]),
            from_offset=row["from_offset"],
            until_offset=row["until_offset"],
        )
        for row in rows
    )


def find_window_rows(
    connection: Connection[TupleRow], pipeline: str, event: Mapping[str, object]
) -> tuple[WindowRow, ...]:
    """Find the rows of the home's window outputs that an event is in.

    Args:
        connection: To the home, outside a transaction. Nothing is written.
        pipeline: The pipeline's name.
        event: The columns that its record gives.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``, or a table may not be read.
        RetryableError: The server went away.
    """
    with snapshot(connection, doing="looking for rows of windows"):
        audited = read_pipeline(connection, pipeline)
        keep_tables(connection, audited)
        moment = event.get(audited.event_time)
        if not isinstance(moment, datetime):
            return ()
        return tuple(
            row
            for output in audited.windows
            if output.databases == (HOME,)
            for row in _rows_of(connection, output, moment, event)
        )


def _rows_of(
    connection: Connection[TupleRow],
    output: AuditedOutput,
    moment: datetime,
    event: Mapping[str, object],
) -> list[WindowRow]:
    known = [name for name in output.by if name in event]
    statement = _SQL["rows_at"].format(
        table=output.identifier,
        by=sql.SQL("").join(
            sql.SQL(", {}").format(sql.Identifier(name)) for name in output.by
        ),
        same=sql.SQL("").join(
            sql.SQL(" AND {} IS NOT DISTINCT FROM {}").format(
                sql.Identifier(name), sql.Placeholder(f"by_{number}")
            )
            for number, name in enumerate(known)
        ),
    )
    values = {f"by_{number}": event[name] for number, name in enumerate(known)}
    return [
        WindowRow(
            table=output.table,
            start=row["window_start"],
            end=row["window_end"],
            by={name: row[name] for name in output.by},
            is_sure=len(known) == len(output.by),
        )
        for row in fetch(connection, statement, moment=moment, **values)
    ]
