"""How far pipelines are behind the topics that they read."""

from __future__ import annotations

from collections.abc import Mapping

from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.recovery import BrokerPosition


def lags_of(
    next_offsets: Mapping[TopicPartition, int],
    broker: Mapping[TopicPartition, BrokerPosition] | None,
) -> dict[TopicPartition, int] | None:
    """Return the number of unread offsets of each partition; None if it is unknown.

    A partition that the pipeline has not seen yet lags by all that it holds.

    Args:
        next_offsets: The next offset to read of each partition.
        broker: The positions in Kafka; None if Kafka does not answer.
    """
    if broker is None:
        return None
    return {
        place: max(
            0,
            position.log_end_offset
            - next_offsets.get(place, position.log_start_offset),
        )
        for place, position in sorted(broker.items())
    }
