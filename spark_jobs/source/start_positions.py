"""Find the offsets at which a claim begins to read."""

from __future__ import annotations

import structlog

from tallyweir.sinks.postgres.publish.home import PostgresHome
from tallyweir.sinks.protocol.batch_run import streamed
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.ports import Progress
from tallyweir.sinks.protocol.recovery import StoredPosition, decide_start
from tallyweir.spark_jobs.source.kafka_admin import KafkaAdmin


def read_starts(
    admin: KafkaAdmin,
    home: PostgresHome,
    progress: Progress,
    log: structlog.typing.FilteringBoundLogger,
) -> dict[TopicPartition, int]:
    """Return the first offset to read of each partition; register new partitions.

    Raises:
        TallyweirError: As ``decide_start`` does, or a server is unreachable.
    """
    broker = admin.read_positions()
    stored = streamed(progress.positions)
    starts = decide_start(stored, broker)
    fresh = {
        place: StoredPosition(topic_id=broker[place].topic_id, next_offset=offset)
        for place, offset in starts.items()
        if place not in stored
    }
    if fresh:
        home.register_positions(fresh)
    left = sorted(stored.keys() - starts.keys())
    if left:
        log.warning(
            "topic left out",
            positions={str(place): stored[place].next_offset for place in left},
            fix="Nothing to do if this is intended. If source.topic names the topic "
            "again, the pipeline goes on from these positions.",
        )
    return starts
