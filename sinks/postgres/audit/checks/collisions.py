"""Finds Kafka records that were settled twice: as two rows, or as a row and aside.

A row that an upsert replaced or that was erased is settled too, and must not be present
again.

Rows of one output may be in several databases, while what was put aside is in the home
only. So each database reports the positions that it has taken, 64 to a number, and this
module merges the numbers and compares them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import combinations, groupby

from psycopg import Connection, sql
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.audit.audited_databases import AuditedDatabases
from tallyweir.sinks.postgres.audit.checks.ledger_ranges import LedgerRanges
from tallyweir.sinks.postgres.audit.side_tables import PUT_ASIDE
from tallyweir.sinks.postgres.ledger.audited_pipeline import AuditedOutput
from tallyweir.sinks.postgres.server.statements import load_statements

_COLLISIONS = load_statements("tallyweir.sinks.postgres.audit.checks", "collisions.sql")

_BLOCK_BITS = 64

#: How many numbers a server sends at a time.
_BLOCKS_FETCHED = 10_000

#: Statements that find rows which must be absent, and why each must be.
_GONE = {
    "replaced_positions": "replaced by an upsert",
    "erased_positions": "erased",
}

#: Topic, partition, number of the block, the place that reports it, and its bits.
Block = tuple[str, int, int, str, int]


def find_collisions(
    databases: AuditedDatabases,
    pipeline: str,
    output: AuditedOutput,
    ranges: LedgerRanges,
) -> Iterator[str]:
    """Name every position that is taken twice, inside the caller's snapshots."""
    doubled = _COLLISIONS["doubled_positions"].format(table=output.identifier)
    for database in databases.of(output):
        for row in database.fetch(doubled, read_topics=ranges.read_topics):
            yield (
                f"{output.table}: {row['topic']}[{row['partition']}] offset "
                f"{row['kafka_offset']} is there {row['rows']} times"
            )
    with ExitStack() as cursors:
        streams = [
            _stream(
                cursors,
                database.connection,
                _COLLISIONS["taken_positions"].format(table=output.identifier),
                label=f"in {database.name}",
                read_topics=ranges.read_topics,
            )
            for database in databases.of(output)
        ]
        streams += [
            _stream(
                cursors,
                databases.home.connection,
                _COLLISIONS[positions],
                label=label,
                pipeline=pipeline,
                output_table=output.table,
            )
            for positions, label in _GONE.items()
        ]
        streams += [
            _stream(
                cursors,
                databases.home.connection,
                _COLLISIONS["positions_put_aside"],
                label=side.called,
                pipeline=pipeline,
                kind=side.name,
            )
            for side in PUT_ASIDE
        ]
        for where, offset, former, latter in shared_positions(streams):
            # Another check finds events that were put aside twice.
            if former.startswith("in "):
                there = former if latter.startswith("in ") else "there"
                yield (
                    f"{output.table}: {where} offset {offset} is {there}, and is "
                    f"{latter} as well"
                )


def _stream(
    cursors: ExitStack,
    connection: Connection[TupleRow],
    statement: sql.SQL | sql.Composed,
    *,
    label: str,
    **values: object,
) -> Iterator[Block]:
    cursor = cursors.enter_context(connection.cursor(label))
    cursor.itersize = _BLOCKS_FETCHED
    cursor.execute(statement, values)
    return (
        (topic, partition, block, label, taken)
        for topic, partition, block, taken in cursor
    )


def shared_positions(
    streams: list[Iterator[Block]],
) -> Iterator[tuple[str, int, str, str]]:
    """Yield each position that two of the ordered streams have taken.

    Returns:
        Partition, offset, and the labels of the two streams, a database's first.
    """
    for place, group in groupby(heapq.merge(*streams), key=lambda block: block[:3]):
        topic, partition, block = place
        # Labels of databases begin with "in", which sorts after the labels of events
        # that were put aside; the row comes first in the message.
        found = sorted(group, key=lambda entry: not entry[3].startswith("in "))
        for former, latter in combinations(found, 2):
            both = former[4] & latter[4]
            for bit in range(_BLOCK_BITS) if both else ():
                if both >> bit & 1:
                    offset = block * _BLOCK_BITS + bit
                    yield f"{topic}[{partition}]", offset, former[3], latter[3]
