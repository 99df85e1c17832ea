"""Compares the rows of a pipeline with those that a replay has made, row by row.

First, the pipeline's rows are copied to the scratch database, from one snapshot of each
of its databases. The snapshots end with the copying, so they do not hold up vacuum for
as long as the replay takes, and drivers that go on publishing do not change what is
compared.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from psycopg import Connection, sql
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.audit.replay.replay_parts import as_json
from tallyweir.sinks.postgres.audit.replay.replay_receipt import (
    ComparedPart,
    Finding,
    FoundRow,
)
from tallyweir.sinks.postgres.ledger.audited_pipeline import fetch, fetch_one
from tallyweir.sinks.postgres.outputs.output import ReplayPart
from tallyweir.sinks.postgres.server.columns import is_there, table_identifier
from tallyweir.sinks.postgres.server.naming import HOME, state_table
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.offsets import OffsetRange, TopicPartition

_SQL = load_statements("tallyweir.sinks.postgres.audit.replay", "replay.sql")

#: How many rows that are not the same are fetched at a time.
_FETCHED = 1_000

Values = Mapping[str, str | None]

#: Takes a part, a row's key, and each side's values (None without a row). Returns why
#: the difference is undetermined, or an empty string if it is not.
Explains = Callable[[ReplayPart, Values, Values | None, Values | None], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two sides: the pipeline itself, or the replay.

    Attributes:
        databases: Connections by name, each in the snapshot that counts.
        number: The pipeline's number in its home.
        installation: The installation ID of the home.
        own: Its names of output tables, by the names in its file, where these differ.
    """

    is_replayed: bool
    databases: Mapping[str, Connection[TupleRow]]
    pipeline: str
    number: int
    installation: str
    own: Mapping[str, str]

    def table(self, part: ReplayPart, database: str) -> sql.Identifier:
        """Name a part's table in one database."""
        if part.is_ledger:
            return part.identifier
        if part.output is None or part.output not in self.own:
            named = part.table
        else:
            named = self.own[part.output] + part.table.removeprefix(part.output)
        if not part.is_state:
            return table_identifier(named)
        return state_table(
            self.number,
            named,
            installation=None if database == HOME else self.installation,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayBounds:
    """Which rows are compared.

    Attributes:
        after_sequence: The last batch before the replayed ones.
        ranges: Ranges of records that only replayed batches have read.
        has_erased: Whether anything of the pipeline was ever erased.
        watermark: The watermark of batch ``after_sequence``.
    """

    after_sequence: int
    ranges: tuple[OffsetRange, ...]
    has_erased: bool
    watermark: datetime | None = None

    def condition(self, part: ReplayPart, pipeline: str) -> sql.Composable:
        """Return the condition that selects the rows to compare."""
        named = sql.Literal(pipeline)
        conditions: list[sql.Composable] = [sql.SQL("true")]
        if part.has_sequence:
            since = sql.Literal(self.after_sequence)
            conditions.append(_SQL["since"].format(pipeline=named, sequence=since))
        elif part.is_ledger:
            conditions.append(_SQL["of_pipeline"].format(pipeline=named))
        if self.after_sequence:
            conditions += self._since(part)
        if part.has_positions and self.has_erased and part.databases == (HOME,):
            conditions.append(_SQL["not_erased"].format(pipeline=named))
        if part.has_positions and not part.is_ledger:
            places = [one.topic_partition for one in self.ranges]
            conditions.append(
                _SQL["read_by_replayed"].format(
                    topics=sql.Literal([place.topic for place in places]),
                    partitions=sql.Literal([place.partition for place in places]),
                    begins=sql.Literal([one.from_offset for one in self.ranges]),
                    ends=sql.Literal([one.until_offset for one in self.ranges]),
                )
            )
        return sql.SQL(" AND ").join(conditions)

    def _since(self, part: ReplayPart) -> Iterator[sql.Composable]:
        """Leave out rows that no replayed batch has changed, where that is known."""
        if part.written_in is not None:
            yield _SQL["written_since"].format(
                column=sql.Identifier(part.written_in),
                sequence=sql.Literal(self.after_sequence),
            )
        if part.lateness_us is not None:
            yield _SQL["unsettled_since"].format(
                lateness=sql.Literal(f"{part.lateness_us} microseconds"),
                watermark=sql.Literal(self.watermark or "-infinity"),
            )


class ReplayRows:
    """Both sides' rows, in tables of the scratch database.

    Args:
        scratch: To the scratch home, in autocommit.
        parts: The parts to compare.
        bounds: Which rows of them to compare.
    """

    def __init__(
        self,
        scratch: Connection[TupleRow],
        parts: Sequence[ReplayPart],
        bounds: ReplayBounds,
    ) -> None:
        self._scratch = scratch
        self._parts = parts
        self._bounds = bounds
        #: The table that a part lacks on one side, by the part's number and the side.
        self._lacking: dict[tuple[int, bool], str] = {}

    def create(self) -> None:
        """Create the tables that rows are copied to."""
        self._scratch.execute(_SQL["create_compared"])

    def copy_aside(self, committed: Side) -> None:
        """Copy which records lost their ID to another copy, or were refused."""
        query = _SQL["aside"].format(pipeline=sql.Literal(committed.pipeline))
        self._copy(committed.databases[HOME], query, _SQL["copy_aside"])

    def copy_side(self, side: Side) -> None:
        """Copy all rows of one side, as its databases have them now."""
        for number, part in enumerate(self._parts):
            for database in part.databases:
                self._copy_part(number, part, side, database)

    def _copy_part(
        self, number: int, part: ReplayPart, side: Side, database: str
    ) -> None:
        connection = side.databases[database]
        table = side.table(part, database)
        if not is_there(connection, table):
            self._lacking[number, side.is_replayed] = table.as_string(connection)
            return
        query = _SQL["read_part"].format(
            part=sql.Literal(number),
            is_replayed=sql.Literal(side.is_replayed),
            key=as_json(part, part.keys, side.own),
            said=as_json(part, part.said, side.own),
            table=table,
            bound=self._bounds.condition(part, side.pipeline),
        )
        if connection is self._scratch:
            self._scratch.execute(_SQL["insert_compared"].format(query=query))
        else:
            self._copy(connection, query, _SQL["copy_compared"])

    def _copy(
        self,
        connection: Connection[TupleRow],
        query: sql.Composable,
        into: sql.SQL,
    ) -> None:
        with (
            connection.cursor().copy(_SQL["copy_out"].format(query=query)) as source,
            self._scratch.cursor().copy(into) as target,
        ):
            for block in source:
                target.write(block)

    def compare(
        self, explains: Explains, not_compared: Callable[[ReplayPart], str]
    ) -> Iterator[ComparedPart]:
        """Compare part by part, after both sides were copied.

        Args:
            explains: Says why a difference is undetermined.
            not_compared: Says why a part is not to be compared.
        """
        self._scratch.execute(_SQL["index_compared"])
        for number, part in enumerate(self._parts):
            compared = ComparedPart(name=part.name, not_compared=not_compared(part))
            if not compared.not_compared:
                self._compare(number, part, compared, explains)
            yield compared

    def _compare(
        self, number: int, part: ReplayPart, compared: ComparedPart, explains: Explains
    ) -> None:
        sides = [_side(number, part, is_replayed=one) for one in (False, True)]
        compared.committed, compared.replayed = (
            fetch_one(self._scratch, _SQL["count_side"].format(side=side))["rows"]
            for side in sides
        )
        lacking = self._lacking.get((number, False))
        if lacking is not None and compared.replayed:
            compared.note = f"there is no table {lacking}"
        committed, replayed = sides
        query = _SQL["differing"].format(committed=committed, replayed=replayed)
        unlike = taken = 0
        for key, there, again in self._stream(query):
            unlike += there is not None
            if there is None and part.only_waiting:
                taken += 1
                continue
            compared.add(_found(part, key, there, again, explains))
        compared.equal = compared.committed - unlike
        compared.taken = taken

    def _stream(
        self, query: sql.Composed
    ) -> Iterator[tuple[Values, Values | None, Values | None]]:
        with (
            self._scratch.transaction(),
            self._scratch.cursor(name="tallyweir_replay") as cursor,
        ):
            cursor.itersize = _FETCHED
            for key, there, again in cursor.execute(query):
                yield json.loads(key), _loaded(there), _loaded(again)

    def aside_of(self, sequence: int) -> list[tuple[TopicPartition, int, str, str]]:
        """Return the records of a batch that lost or were refused, with the detail."""
        rows = fetch(self._scratch, _SQL["aside_of"], sequence=sequence)
        return [
            (
                TopicPartition(row["topic"], row["partition"]),
                row["offset"],
                row["kind"],
                row["detail"],
            )
            for row in rows
        ]


def _side(number: int, part: ReplayPart, *, is_replayed: bool) -> sql.Composed:
    return _SQL["side"].format(
        once=sql.SQL("DISTINCT" if part.once else ""),
        part=sql.Literal(number),
        is_replayed=sql.Literal(is_replayed),
    )


def _loaded(text: str | None) -> Values | None:
    return None if text is None else json.loads(text)


def _found(
    part: ReplayPart,
    key: Values,
    there: Values | None,
    again: Values | None,
    explains: Explains,
) -> FoundRow:
    if there is not None and again is not None:
        finding = Finding.DIFFERENT
        names = [name for name in there if there[name] != again[name]]
        there = {name: there[name] for name in names}
        again = {name: again[name] for name in names}
    else:
        finding = Finding.MISSING if there is None else Finding.EXTRA
    reason = explains(part, key, there, again)
    return FoundRow(
        key=key,
        finding=Finding.UNDETERMINED if reason else finding,
        committed=there,
        replayed=again,
        reason=reason,
    )


def merged(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Join ranges that touch or overlap; sorted, without the empty ones."""
    joined: list[OffsetRange] = []
    for one in sorted(ranges, key=lambda r: (r.topic_partition, r.from_offset)):
        if not one.length:
            continue
        last = joined[-1] if joined else None
        if (
            last is not None
            and last.topic_partition == one.topic_partition
            and last.until_offset >= one.from_offset
        ):
            joined[-1] = OffsetRange(
                topic_partition=last.topic_partition,
                from_offset=last.from_offset,
                until_offset=max(last.until_offset, one.until_offset),
            )
        else:
            joined.append(one)
    return joined


def without(
    ranges: Iterable[OffsetRange], others: Iterable[OffsetRange]
) -> tuple[OffsetRange, ...]:
    """Return the parts of some ranges that are in none of the others."""
    left = merged(ranges)
    for other in merged(others):
        left = [part for one in left for part in _cut(one, other)]
    return tuple(left)


def _cut(one: OffsetRange, other: OffsetRange) -> Iterator[OffsetRange]:
    if one.topic_partition != other.topic_partition:
        yield one
        return
    pieces = (
        (one.from_offset, min(one.until_offset, other.from_offset)),
        (max(one.from_offset, other.until_offset), one.until_offset),
    )
    for begin, end in pieces:
        if begin < end:
            yield OffsetRange(
                topic_partition=one.topic_partition, from_offset=begin, until_offset=end
            )
