"""The ledger's ranges, as parameters for a database that does not have the ledger.

Ranges overlap where ``offsets reset`` had records read again. Events that the first
reading made results of were duplicates in the later readings, so a row belongs to the
first batch that read its position. The exceptions are positions that this batch put
aside and a later batch did not; they are listed one by one.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from psycopg import Connection, sql
from psycopg.rows import DictRow, TupleRow

from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    AuditedOutput,
    fetch,
    fetch_one,
    read_positions,
)
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.offsets import TopicPartition

_OUTPUTS = load_statements("tallyweir.sinks.postgres.ledger", "outputs.sql")

#: The ranges of each partition, for a statement that gets ``LedgerRanges.parameters``.
BOUNDS = _OUTPUTS["bounds"]

#: From offset, until offset, and the batch.
Span = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRanges:
    """Every range of every batch, and the offsets at which reading continues."""

    #: By partition, in offset order; ranges overlap where records were read again.
    spans: dict[TopicPartition, list[Span]]
    #: Events that became results, by batch and partition.
    committed: dict[tuple[int, TopicPartition], int]
    #: Positions that became results only when they were read again, as columns.
    second_chances: dict[str, list[object]]
    #: The first batch whose rows have not been truncated.
    standing_from: int
    next_offsets: dict[TopicPartition, int]

    @property
    def read_topics(self) -> list[str]:
        """Every topic that the pipeline ever read."""
        return sorted({place.topic for place in (*self.spans, *self.next_offsets)})

    @property
    def parameters(self) -> dict[str, object]:
        """The parameters of the statements about rows per range."""
        owned = [
            (place, *span)
            for place, spans in self.spans.items()
            for span in owned_spans(spans, self.standing_from)
        ]
        return {
            "topics": [place.topic for place, *_ in owned],
            "partitions": [place.partition for place, *_ in owned],
            "froms": [start for _, start, _, _ in owned],
            "untils": [end for _, _, end, _ in owned],
            "sequences": [sequence for *_, sequence in owned],
            "read_topics": self.read_topics,
            **{f"again_{name}": column for name, column in self.second_chances.items()},
        }

    def committed_by_range(self) -> Iterator[tuple[int, TopicPartition, int]]:
        """Yield each range's batch, partition and committed events."""
        for (sequence, place), committed in self.committed.items():
            yield sequence, place, committed


def owned_spans(spans: Iterable[Span], standing_from: int) -> Iterator[Span]:
    """Cut ranges so that each offset is in one: that of the batch that has its row.

    Args:
        spans: The spans of one partition, in offset order.
        standing_from: Earlier batches have no rows left; such a batch owns an offset
            only if no later one has read it.
    """

    def preference(span: Span) -> tuple[bool, int]:
        return span[2] < standing_from, span[2]

    pending = sorted(span for span in spans if span[1] > span[0])
    edges = sorted({edge for start, end, _ in pending for edge in (start, end)})
    covering: list[tuple[tuple[bool, int], Span]] = []
    following = 0
    for start, end in pairwise(edges):
        while following < len(pending) and pending[following][0] <= start:
            heapq.heappush(
                covering, (preference(pending[following]), pending[following])
            )
            following += 1
        # A span that has ended but is not on top of the heap hides nothing; leave it.
        while covering and covering[0][1][1] <= start:
            heapq.heappop(covering)
        if covering:
            yield start, end, covering[0][1][2]


def read_ledger_ranges(connection: Connection[TupleRow], pipeline: str) -> LedgerRanges:
    """Read all ranges, inside the caller's snapshot."""
    columns = fetch_one(connection, _OUTPUTS["ledger_ranges"], pipeline=pipeline)
    spans: dict[TopicPartition, list[Span]] = defaultdict(list)
    committed: dict[tuple[int, TopicPartition], int] = {}
    for topic, partition, sequence, start, end, events in zip(
        *(
            columns[name]
            for name in (
                *("topics", "partitions", "sequences", "froms", "untils"),
                "committed",
            )
        ),
        strict=True,
    ):
        place = TopicPartition(topic, partition)
        spans[place].append((start, end, sequence))
        committed[sequence, place] = events
    standing = fetch_one(connection, _OUTPUTS["standing_from"], pipeline=pipeline)
    return LedgerRanges(
        spans={place: sorted(found) for place, found in spans.items()},
        committed=committed,
        second_chances=fetch_one(
            connection, _OUTPUTS["second_chances"], pipeline=pipeline
        ),
        standing_from=standing["sequence"],
        next_offsets=read_positions(connection, pipeline),
    )


def read_claims(
    home: Connection[TupleRow], pipeline: str, output: AuditedOutput
) -> list[DictRow]:
    """Read what each batch says of an output, in the order of the batches."""
    return fetch(
        home,
        _OUTPUTS["output_claims"],
        pipeline=pipeline,
        output_table=output.table,
    )


def tallied_rows(table: sql.Composable) -> sql.Composed:
    """Return the statement that counts the rows of a table by batch and partition."""
    return _OUTPUTS["tallied_rows"].format(table=table, bounds=BOUNDS)
