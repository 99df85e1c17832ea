"""Lets a pipeline go on past records that Kafka's retention deleted unread.

The ledger keeps the loss with a reason, so that ``verify`` can tell it from a gap that
was not accepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from psycopg import Connection
from psycopg.rows import DictRow, TupleRow

from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    fetch,
    fetch_one,
    read_pipeline,
)
from tallyweir.sinks.postgres.server.sqlstate import translated
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.offsets import OffsetRange, TopicPartition
from tallyweir.sinks.protocol.recovery import BrokerPosition, check_topic_identity

_GAPS = load_statements("tallyweir.sinks.postgres.audit.status", "gap_acceptance.sql")

#: How long to wait for a publish that is under way.
LOCK_TIMEOUT_MS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionGap:
    """Offsets of one partition that Kafka deleted before they were read."""

    lost: OffsetRange
    topic_id: str
    #: The newest event time that was committed before the gap.
    event_time_before: datetime | None


def find_gaps(
    connection: Connection[TupleRow],
    pipeline: str,
    broker: Mapping[TopicPartition, BrokerPosition],
) -> tuple[RetentionGap, ...]:
    """Find the offsets that are gone, without changing anything.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``, ``TOPIC_RECREATED``, or
            ``NO_GAP``: Kafka still has every record that was not read.
    """
    with translated("looking for gaps"), connection.transaction():
        read_pipeline(connection, pipeline)
        return _find_gaps(connection, pipeline, broker)


def accept_gaps(
    connection: Connection[TupleRow],
    pipeline: str,
    broker: Mapping[TopicPartition, BrokerPosition],
    *,
    reason: str,
    lock_timeout_ms: int = LOCK_TIMEOUT_MS,
) -> tuple[RetentionGap, ...]:
    """Write the gaps to the ledger and move the pipeline past them, in one commit.

    A driver that runs meanwhile is not fenced and need not be: its next batch begins
    at the old offset, so its own compare-and-set refuses it.

    Args:
        connection: To the home, outside a transaction.
        pipeline: The pipeline's name.
        broker: What the broker holds of the pipeline's topics.
        reason: Why the loss is acceptable; the ledger keeps it permanently.
        lock_timeout_ms: How long to wait for a publish that is under way.

    Raises:
        ConfigurationError: ``GAP_REASON_MISSING``, ``PIPELINE_UNKNOWN``,
            ``TOPIC_RECREATED`` or ``NO_GAP``.
        RetryableError: A publish held the pipeline's row for too long.

    Crash:
        Before the COMMIT nothing has changed; after it the pipeline starts at the
        log's start. A repeated call then finds no gap and says so.
    """
    if not reason.strip():
        raise ConfigurationError(
            "GAP_REASON_MISSING",
            saw="The reason is blank.",
            why="Accepting a gap gives up events as lost; the ledger must record who "
            "decided that and why.",
            fix="Pass --reason with a sentence that will still make sense in a year.",
        )
    with translated("accepting a gap"), connection.transaction():
        read_pipeline(connection, pipeline)
        fetch(connection, _GAPS["begin_settings"], timeout=f"{lock_timeout_ms}ms")
        # Read the positions under the lock: a publish that was under way has either
        # moved them by now or will fail its compare-and-set.
        locked = fetch_one(connection, _GAPS["lock_pipeline"], pipeline=pipeline)
        gaps = _find_gaps(connection, pipeline, broker)
        for gap in gaps:
            _accept(connection, pipeline, gap, locked["last_sequence"], reason)
    return gaps


def _find_gaps(
    connection: Connection[TupleRow],
    pipeline: str,
    broker: Mapping[TopicPartition, BrokerPosition],
) -> tuple[RetentionGap, ...]:
    rows = {
        TopicPartition(row["topic"], row["partition"]): row
        for row in fetch(connection, _GAPS["stored_positions"], pipeline=pipeline)
    }
    check_topic_identity(
        {place.topic: row["topic_id"] for place, row in rows.items()},
        {place.topic: position.topic_id for place, position in broker.items()},
    )
    topics = {place.topic for place in rows}
    gaps = tuple(
        _gap(place, rows.get(place), position)
        for place, position in sorted(broker.items())
        if place.topic in topics
        and _next_offset(rows.get(place)) < position.log_start_offset
    )
    if not gaps:
        raise ConfigurationError(
            "NO_GAP",
            saw=f"Every offset that pipeline {pipeline} has yet to read is in Kafka: "
            + ", ".join(f"{p} from {_next_offset(r)}" for p, r in sorted(rows.items()))
            + "."
            if rows
            else f"Pipeline {pipeline} reads no topic: it has only had batch runs.",
            why="No offsets are missing, and skipping readable events would lose them.",
            fix="Start the pipeline.",
        )
    return gaps


def _next_offset(row: DictRow | None) -> int:
    # A partition that was added to a topic is read from its first offset.
    return 0 if row is None else int(row["next_offset"])


def _gap(
    place: TopicPartition, row: DictRow | None, position: BrokerPosition
) -> RetentionGap:
    return RetentionGap(
        lost=OffsetRange(
            topic_partition=place,
            from_offset=_next_offset(row),
            until_offset=position.log_start_offset,
        ),
        topic_id=position.topic_id,
        event_time_before=None if row is None else row["event_time_max"],
    )


def _accept(
    connection: Connection[TupleRow],
    pipeline: str,
    gap: RetentionGap,
    after_sequence: int,
    reason: str,
) -> None:
    values = {
        "pipeline": pipeline,
        "topic": gap.lost.topic_partition.topic,
        "partition": gap.lost.topic_partition.partition,
        "topic_id": gap.topic_id,
        "from_offset": gap.lost.from_offset,
        "until_offset": gap.lost.until_offset,
        "after_sequence": after_sequence,
        "reason": reason.strip(),
    }
    connection.execute(_GAPS["record_gap"], values)
    advanced = connection.execute(_GAPS["advance_position"], values)
    assert advanced.rowcount == 1, "the position moved under the pipeline's lock"
