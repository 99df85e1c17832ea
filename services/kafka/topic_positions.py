"""Ask Kafka for the positions of the topics of many pipelines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tallyweir.services.kafka.topic_log import TopicLog
from tallyweir.sinks.protocol.errors import ConfigurationError, TallyweirError
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.recovery import BrokerPosition


def read_positions(
    bootstrap: str, topics: Iterable[str]
) -> tuple[dict[TopicPartition, BrokerPosition] | None, Sequence[TallyweirError]]:
    """Ask Kafka for the positions of topics, even if some topics are missing.

    Returns:
        The positions in the topics that exist, or None if Kafka does not answer; and
        the errors found.
    """
    wanted = sorted(topics)
    if not wanted:
        return {}, ()
    missing: list[TallyweirError] = []
    try:
        return _read_those_there(bootstrap, wanted, missing), missing
    except TallyweirError as error:
        return None, [*missing, error]


def _read_those_there(
    bootstrap: str, topics: list[str], missing: list[TallyweirError]
) -> dict[TopicPartition, BrokerPosition]:
    try:
        return TopicLog(bootstrap, *topics).read_positions()
    except ConfigurationError as error:
        if len(topics) == 1:
            missing.append(error)
            return {}
    half = len(topics) // 2
    return _read_those_there(bootstrap, topics[:half], missing) | _read_those_there(
        bootstrap, topics[half:], missing
    )


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
