"""Compares the ledger's ``read`` counts with Kafka, where Kafka still has the records.

The code under audit writes the ledger itself, but not Kafka. A batch cannot be counted
again after retention has deleted a part of it; the check names such batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from psycopg import Connection
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.audit.receipt import Check, judge
from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    fetch,
    read_pipeline,
    snapshot,
)
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.batch_run import is_run_topic
from tallyweir.sinks.protocol.offsets import OffsetRange, TopicPartition

_RECOUNT = load_statements("tallyweir.sinks.postgres.audit.checks", "recount.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecountSpan:
    """Successive ranges of one partition, without a gap between them.

    An accepted gap begins a new span: the pipeline never read the records that Kafka
    may hold in it.
    """

    offsets: OffsetRange
    #: Records that were read in the span, according to the ledger.
    read: int
    #: Offsets before the span that are not in Kafka: either retention has deleted them
    #: since they were read, or they belong to a batch run.
    lost: OffsetRange | None = None


def read_recount_spans(
    connection: Connection[TupleRow],
    pipeline: str,
    log_starts: Mapping[TopicPartition, int],
) -> tuple[RecountSpan, ...]:
    """Return the spans to count again, from the first batch that Kafka holds whole.

    Args:
        connection: To the home, outside a transaction. Nothing is written.
        pipeline: The pipeline's name.
        log_starts: The first offset that Kafka still holds, by partition. A missing
            partition is gone from Kafka entirely.
    """
    with snapshot(connection, doing="reading the ledger"):
        read_pipeline(connection, pipeline)
        rows = fetch(connection, _RECOUNT["read_ranges"], pipeline=pipeline)
    spans: list[RecountSpan] = []
    for (topic, partition), group in groupby(rows, itemgetter("topic", "partition")):
        place = TopicPartition(topic, partition)
        ranges = [
            RecountSpan(
                offsets=OffsetRange(
                    topic_partition=place,
                    from_offset=row["from_offset"],
                    until_offset=row["until_offset"],
                ),
                read=row["read"],
            )
            for row in group
        ]
        spans += _retained(ranges, log_starts.get(place))
    return tuple(spans)


def _retained(ranges: list[RecountSpan], log_start: int | None) -> list[RecountSpan]:
    lost: OffsetRange | None = None
    spans: list[RecountSpan] = []
    for part in ranges:
        if log_start is None or part.offsets.from_offset < log_start:
            lost = _joined(lost, part.offsets)
        elif spans and spans[-1].offsets.until_offset == part.offsets.from_offset:
            spans[-1] = RecountSpan(
                offsets=_joined(spans[-1].offsets, part.offsets),
                read=spans[-1].read + part.read,
                lost=spans[-1].lost,
            )
        else:
            spans.append(RecountSpan(offsets=part.offsets, read=part.read, lost=lost))
            lost = None
    if lost is not None:
        spans.append(RecountSpan(offsets=_empty_after(lost), read=0, lost=lost))
    return spans


def _joined(former: OffsetRange | None, following: OffsetRange) -> OffsetRange:
    return OffsetRange(
        topic_partition=following.topic_partition,
        from_offset=following.from_offset if former is None else former.from_offset,
        until_offset=following.until_offset,
    )


def _empty_after(lost: OffsetRange) -> OffsetRange:
    return OffsetRange(
        topic_partition=lost.topic_partition,
        from_offset=lost.until_offset,
        until_offset=lost.until_offset,
    )


def check_recount(spans: tuple[RecountSpan, ...], counted: tuple[int, ...]) -> Check:
    """Compare the ledger with the counts from Kafka, span by span.

    Args:
        spans: The spans to check.
        counted: Records that Kafka delivered, in the order of ``spans``.
    """
    violations = [
        f"{span.offsets}: Kafka holds {count} records, the ledger says {span.read} "
        "were read"
        for span, count in zip(spans, counted, strict=True)
        if span.read != count
    ]
    lost = [span.lost for span in spans if span.lost is not None]
    deleted = [one for one in lost if not is_run_topic(one.topic_partition.topic)]
    of_runs = [one for one in lost if is_run_topic(one.topic_partition.topic)]
    return judge(
        "recount",
        checked=sum(counted),
        unit="records in Kafka",
        violations=violations,
        note="; ".join(
            f"not checkable, {why}: {', '.join(map(str, ranges))}"
            for why, ranges in (
                ("deleted by retention since", deleted),
                ("read by batch runs", of_runs),
            )
            if ranges
        ),
    )
