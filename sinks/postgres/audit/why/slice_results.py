"""Reads what a pipeline has made of ranges of records: fates and rows.

Reads a home and a scratch database that stands for it in the same way, so that the two
can be compared.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.audit.audited_databases import (
    AuditedDatabase,
    AuditedDatabases,
    connect_databases,
    databases_of,
)
from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    AuditedOutput,
    AuditedPipeline,
    fetch,
    fetch_one,
    read_pipeline,
    read_positions,
    snapshot,
)
from tallyweir.sinks.postgres.outputs.window_columns import WINDOW_END, WINDOW_START
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.offsets import OffsetRange, TopicPartition

_SQL = load_statements("tallyweir.sinks.postgres.audit.why", "slice_results.sql")

#: Error codes which say that the pipeline never ran here, or has been discarded.
_NEVER_RUN = frozenset({"LEDGER_MISSING", "PIPELINE_DISCARDED", "PIPELINE_UNKNOWN"})
_COMMITTED = "committed"
_LATE = "late"


class Position(NamedTuple):
    """The position of a record."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFate:
    """The fate of a record.

    Attributes:
        outcome: A column of the ledger, or ``not read``.
        why: The known reason; empty if the record was simply committed.
        sequence: The batch that published it.
    """

    outcome: str
    why: str = ""
    sequence: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRows:
    """Rows of one output, from all of its databases."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    #: The columns that identify a row; empty if none are known to.
    key: tuple[str, ...]

    def by_key(self) -> dict[tuple[Any, ...], dict[str, Any]]:
        """Return each row by the values of its key."""
        named = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        return {tuple(row[name] for name in self.key): row for row in named}


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceResults:
    """The results that one pipeline has made of the ranges.

    Attributes:
        definition_hash: The hash of the pipeline as its last driver registered it.
        fates: Fates of the records that were not simply committed.
        published: The ranges that batches have covered, with their sequences.
        next_offsets: Where the pipeline stands.
        outside: The greatest number of other records that it may have read.
        tables: The outputs' rows.
        outbox: The messages that wait in its outbox.
        counts: The ledger's counts, for each partition.
    """

    definition_hash: str
    fates: Mapping[Position, RecordFate]
    published: Mapping[TopicPartition, tuple[tuple[int, int, int], ...]]
    next_offsets: Mapping[TopicPartition, int]
    outside: int
    tables: Mapping[str, TableRows]
    outbox: TableRows
    counts: TableRows

    def fate(self, at: Position) -> RecordFate:
        """Say what became of the record at a position."""
        known = self.fates.get(at)
        if known is not None:
            return known
        place = TopicPartition(at.topic, at.partition)
        ranges = self.published.get(place, ())
        number = bisect_right(ranges, at.offset, key=lambda one: one[0]) - 1
        if number >= 0 and at.offset < ranges[number][1]:
            return RecordFate(outcome=_COMMITTED, sequence=ranges[number][2])
        stands = self.next_offsets.get(place)
        why = (
            "the pipeline has read nothing of the partition"
            if stands is None
            else f"the pipeline reads {place} from {stands} on next"
            if stands <= at.offset
            else "the pipeline began behind it, or passed over a gap"
        )
        return RecordFate(outcome="not read", why=why)


@dataclass(slots=True, kw_only=True)
class _Reader:
    """Reads inside one snapshot of each database."""

    databases: AuditedDatabases
    pipeline: AuditedPipeline
    ranges: dict[str, list[Any]]
    spans: Mapping[str, tuple[datetime, datetime]]
    tables: dict[str, TableRows] = field(default_factory=dict)

    def read_tables(self) -> None:
        for output in self.pipeline.outputs:
            if output.kind.has_event_rows:
                key = ("kafka_topic", "kafka_partition", "kafka_offset")
                self._read(output, "rows", key, **self.ranges)
            elif output.kind.has_windows:
                self._read_windows(output)
            elif output.kind.has_table:
                self._read(output, "all_rows", ())

    def _read_windows(self, output: AuditedOutput) -> None:
        key = (WINDOW_START.name, WINDOW_END.name, *output.by)
        span = self.spans.get(output.table)
        if span is None:
            self._read(output, "all_rows", key)
        else:
            self._read(output, "windows", key, first=span[0], last=span[1])

    def _read(
        self,
        output: AuditedOutput,
        statement: str,
        key: tuple[str, ...],
        **values: object,
    ) -> None:
        found: TableRows | None = None
        for database in self.databases.of(output):
            columns = database.columns(output.identifier)
            # A database that never took rows of the output may lack its table.
            if not columns:
                continue
            composed = _SQL[statement].format(
                table=output.identifier,
                columns=sql.SQL(", ").join(
                    sql.Identifier("written", name) for name in columns
                ),
                start=sql.Identifier("written", WINDOW_START.name),
            )
            part = _fetch_rows(database, composed, values, key)
            found = (
                part if found is None else replace(part, rows=found.rows + part.rows)
            )
        if found is not None:
            self.tables[output.table] = found

    def fates(self) -> dict[Position, RecordFate]:
        """Return the fates of records that were put aside, one for each record."""
        found: dict[Position, RecordFate] = {}
        written = self._written()
        for row in fetch(
            self.databases.home.connection,
            _SQL["put_aside"],
            pipeline=self.pipeline.name,
            **self.ranges,
        ):
            at = Position(row["topic"], row["partition"], row["offset"])
            outcome = row["outcome"]
            if outcome == _LATE and at in written:
                outcome = _COMMITTED
            former = found.get(at)
            why = row["why"] if former is None else f"{former.why}; {row['why']}"
            found[at] = RecordFate(outcome=outcome, why=why, sequence=row["sequence"])
        return found

    def _written(self) -> frozenset[Position]:
        """Positions with a row of their own: late for some window, but committed."""
        appends = {output.table for output in self.pipeline.appends}
        return frozenset(
            Position(*key)
            for table, rows in self.tables.items()
            if table in appends
            for key in rows.by_key()
        )


def read_slice_results(
    home_dsn: str,
    pipeline: str,
    ranges: Sequence[OffsetRange],
    *,
    databases: Mapping[str, str],
    spans: Mapping[str, tuple[datetime, datetime]],
) -> SliceResults | None:
    """Read what a pipeline has made of ranges of records, in one snapshot a database.

    Nothing is written, and no lock is taken that a driver could wait for.

    Args:
        home_dsn: Connection string of the home, or of a database that stands for it.
        pipeline: The pipeline's name.
        ranges: The ranges of records.
        databases: Connection strings of the other databases, by name.
        spans: The first and the last start of the windows to read, by table. For a
            table that is not in here, all windows are read.

    Returns:
        None if no driver of the pipeline has ever started there.

    Raises:
        ConfigurationError: A database is unknown, or a table may not be read.
        RetryableError: A server went away.
    """
    doing = "reading the results of a slice"
    with (
        connect(home_dsn, application_name="tallyweir notebook") as connection,
        ExitStack() as opened,
        snapshot(connection, doing=doing),
    ):
        try:
            audited = read_pipeline(connection, pipeline)
        except ConfigurationError as error:
            if error.code in _NEVER_RUN:
                return None
            raise
        found = connect_databases(opened, connection, databases_of(audited), databases)
        opened.enter_context(found.snapshots(audited))
        reader = _Reader(
            databases=found,
            pipeline=audited,
            ranges=_as_arrays(ranges),
            spans=spans,
        )
        reader.read_tables()
        return _results(reader, connection)


def _results(reader: _Reader, connection: psycopg.Connection[TupleRow]) -> SliceResults:
    home, name = reader.databases.home, reader.pipeline.name
    published: dict[TopicPartition, list[tuple[int, int, int]]] = {}
    for row in fetch(
        connection, _SQL["published_ranges"], pipeline=name, **reader.ranges
    ):
        place = TopicPartition(row["topic"], row["partition"])
        covered = (row["from_offset"], row["until_offset"], row["sequence"])
        published.setdefault(place, []).append(covered)
    outside = fetch_one(
        connection, _SQL["read_outside"], pipeline=name, **reader.ranges
    )
    of_pipeline = {"pipeline": name}
    return SliceResults(
        definition_hash=fetch_one(connection, _SQL["definition_hash"], pipeline=name)[
            "definition_hash"
        ],
        fates=reader.fates(),
        published={place: tuple(spans) for place, spans in published.items()},
        next_offsets=read_positions(connection, name),
        outside=outside["records"],
        tables=reader.tables,
        outbox=_fetch_rows(home, _SQL["outbox"], of_pipeline, ()),
        counts=_fetch_rows(home, _SQL["counts"], of_pipeline, ()),
    )


def _as_arrays(ranges: Sequence[OffsetRange]) -> dict[str, list[Any]]:
    places = [one.topic_partition for one in ranges]
    return {
        "topics": [place.topic for place in places],
        "partitions": [place.partition for place in places],
        "from_offsets": [one.from_offset for one in ranges],
        "until_offsets": [one.until_offset for one in ranges],
    }


def _fetch_rows(
    database: AuditedDatabase,
    statement: sql.SQL | sql.Composed,
    values: Mapping[str, object],
    key: tuple[str, ...],
) -> TableRows:
    cursor = database.connection.execute(statement, values)
    assert cursor.description is not None, "a SELECT describes its columns"
    return TableRows(
        columns=tuple(column.name for column in cursor.description),
        rows=tuple(cursor.fetchall()),
        key=key,
    )
