"""Compare a pipeline's offsets with Kafka's logs and the times of their records."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from psycopg import Connection
from psycopg.rows import TupleRow

from tallyweir.services.kafka.retention import KafkaRetention, Unread
from tallyweir.services.kafka.topic_log import find_offsets_at
from tallyweir.services.process.endpoints import Endpoints
from tallyweir.sinks.kafka_admin import KafkaAdmin
from tallyweir.sinks.postgres import audit
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.recovery import BrokerPosition


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOffsets:
    """The offsets of one partition; unknown values are None.

    Attributes:
        next_offset: The next offset to read.
        next_time: When Kafka got the record there; None if there is no record yet.
        log_start: None, like ``log_end``, if the partition is not in Kafka.
        lag: The number of offsets that are still to be read.
        headroom_s: The seconds until Kafka deletes the next record, as alerts judge
            it; 0 if it may be gone, None if it is kept for good.
    """

    topic: str
    partition: int
    next_offset: int
    next_time: datetime | None
    log_start: int | None
    log_end: int | None
    lag: int | None
    headroom_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredOffsets:
    """The pipeline's offsets in the home database, and the topics that it reads."""

    next_offsets: Mapping[TopicPartition, int]
    topics: tuple[str, ...]


def read_offsets(
    endpoints: Endpoints, pipeline: str, *, now: datetime
) -> tuple[PartitionOffsets, ...]:
    """Read the pipeline's offsets, then the broker's.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN`` or ``TOPIC_MISSING``.
        RetryableError: A server does not answer.
    """
    with connect(endpoints.home_dsn, application_name="tallyweir offsets") as home:
        stored = read_stored_offsets(home, pipeline)
    return compare_offsets(endpoints.kafka_bootstrap, stored, now=now)


def read_stored_offsets(home: Connection[TupleRow], pipeline: str) -> StoredOffsets:
    """Read the pipeline's offsets, and which topics it reads.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``.
        RetryableError: The server does not answer.
    """
    return StoredOffsets(
        next_offsets=audit.read_next_offsets(home, pipeline),
        topics=audit.read_source(home, pipeline).topics,
    )


def compare_offsets(
    bootstrap: str, found: StoredOffsets, *, now: datetime
) -> tuple[PartitionOffsets, ...]:
    """Read the broker's offsets and compare a pipeline's offsets with them.

    Raises:
        ConfigurationError: ``TOPIC_MISSING``.
        RetryableError: The broker does not answer.
    """
    stored = found.next_offsets
    if not stored:
        return ()
    broker = KafkaAdmin(bootstrap, *found.topics).read_positions()
    there = {place: at for place, at in broker.items() if place in stored}
    unread = KafkaRetention(bootstrap).read_parts(stored, there, now)
    return tuple(
        _partition(place, offset, there.get(place), unread.get(place))
        for place, offset in sorted(stored.items())
    )


def offsets_at(
    bootstrap: str,
    home: Connection[TupleRow],
    pipeline: str,
    moment: datetime,
    broker: Mapping[TopicPartition, BrokerPosition],
) -> dict[TopicPartition, int]:
    """Find the end of each partition that a pipeline reads, as it was at a moment.

    Raises:
        RetryableError: A server does not answer.
    """
    ends = {
        place: broker[place].log_end_offset
        for place in audit.read_next_offsets(home, pipeline)
        if place in broker
    }
    return find_offsets_at(bootstrap, moment, ends)


def _partition(
    place: TopicPartition,
    next_offset: int,
    log: BrokerPosition | None,
    unread: Unread | None,
) -> PartitionOffsets:
    headroom_s = math.inf if unread is None else unread.headroom_s
    return PartitionOffsets(
        topic=place.topic,
        partition=place.partition,
        next_offset=next_offset,
        next_time=None if unread is None else unread.oldest_at,
        log_start=None if log is None else log.log_start_offset,
        log_end=None if log is None else log.log_end_offset,
        lag=None if log is None else max(log.log_end_offset - next_offset, 0),
        headroom_s=None if math.isinf(headroom_s) else headroom_s,
    )
