"""How far pipelines are behind the topics that they read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.recovery import BrokerPosition


def positions_of(
    topics: Iterable[str], broker: Mapping[TopicPartition, BrokerPosition] | None
) -> Mapping[TopicPartition, BrokerPosition] | None:
    """Return the positions in some topics; None unless Kafka knows all of them.

    Without topics the result is empty, whether or not Kafka answers.
    """
    wanted = set(topics)
    if not wanted:
        return {}
    if broker is None or not wanted <= {place.topic for place in broker}:
        return None
    return {place: at for place, at in broker.items() if place.topic in wanted}


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
