"""Ask the broker about topics: their ids, partitions and offsets."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec, TopicDescription

from tallyweir.sinks.kafka_settings import client_config
from tallyweir.sinks.protocol.errors import ConfigurationError, RetryableError
from tallyweir.sinks.protocol.offsets import OffsetRange, TopicPartition
from tallyweir.sinks.protocol.recovery import BrokerPosition

#: Seconds after which a silent broker is reported. A broker that restarts or hands its
#: partitions over is back within ten.
BROKER_TIMEOUT_S = 15.0
_TIMEOUT_MIN_S = 0.1

#: The errors of requests to a broker that goes down. Such a request is sent again and
#: waits for a broker; a request that timed out has already waited.
_PASSING = frozenset(
    {
        KafkaError._TRANSPORT,  # noqa: SLF001 - its public name
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
    }
)

_NO_TOPIC = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - its public name
)

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """The state of topics that can keep a pipeline from reading without an error.

    Attributes:
        topic_ids: Kafka's id of each topic.
        ends: The last stable offset of each partition; readers cannot read beyond it.
        held: The range from the last stable offset to the end of each partition, if
            they differ: a producer's open transaction holds it back.
    """

    topic_ids: Mapping[str, str]
    ends: Mapping[TopicPartition, int]
    held: tuple[OffsetRange, ...]


class KafkaAdmin:
    """Asks the broker about the topics of a source; reads no events."""

    def __init__(self, bootstrap: str, *topics: str) -> None:
        self._bootstrap = bootstrap
        self._topics = topics
        # Errors reach the caller as exceptions, so librdkafka need not print them.
        self._client = AdminClient(
            {**client_config(bootstrap), "log_level": 0},
            logger=None,
        )

    def read_topic_ids(self) -> dict[str, str]:
        """Return Kafka's id of each topic; a topic that is created again gets another.

        Raises:
            ConfigurationError: ``TOPIC_MISSING``.
            RetryableError: ``KAFKA_UNREACHABLE``.
        """
        return _ids(self._describe())

    def ask_topic_ids(self) -> Callable[[], dict[str, str]]:
        """Ask for the topics' ids without waiting for the answer.

        Returns:
            A function that waits for the answer; it returns and raises what
            ``read_topic_ids`` does.
        """
        futures = self._begin_describing(BROKER_TIMEOUT_S)

        def answer() -> dict[str, str]:
            try:
                return _ids(self._results(futures))
            except KafkaException:
                return self.read_topic_ids()

        return answer

    def read_positions(self) -> Mapping[TopicPartition, BrokerPosition]:
        """Return id, log start and log end of every partition of the topics.

        The log end is the last stable offset, up to which committed events can be
        read.

        Raises:
            ConfigurationError: ``TOPIC_MISSING``.
            RetryableError: ``KAFKA_UNREACHABLE``.
        """
        described = self._describe()
        ids, places = _ids(described), _places(described)
        starts = self._offsets(places, OffsetSpec.earliest())
        ends = self._offsets(places, OffsetSpec.latest())
        return {
            place: BrokerPosition(
                topic_id=ids[place.topic],
                log_start_offset=starts[place],
                log_end_offset=ends[place],
            )
            for place in places
        }

    def read_state(self) -> TopicState:
        """Return the topics' ids and ends, and the ranges that transactions hold back.

        Raises:
            ConfigurationError: ``TOPIC_MISSING``.
            RetryableError: ``KAFKA_UNREACHABLE``.
        """
        described = self._describe()
        places = _places(described)
        stable = self._offsets(places, OffsetSpec.latest())
        ends = self._offsets(
            places, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED
        )
        return TopicState(
            topic_ids=_ids(described),
            ends=stable,
            held=tuple(
                OffsetRange(
                    topic_partition=place,
                    from_offset=stable[place],
                    until_offset=ends[place],
                )
                for place in sorted(places)
                if stable[place] < ends[place]
            ),
        )

    def _describe(self) -> dict[str, TopicDescription]:
        return self._insist(
            lambda timeout_s: self._results(self._begin_describing(timeout_s))
        )

    def _begin_describing(
        self, timeout_s: float
    ) -> Mapping[str, Future[TopicDescription]]:
        return self._client.describe_topics(
            TopicCollection(list(self._topics)), request_timeout=timeout_s
        )

    def _results(self, futures: Mapping[str, Future[_T]]) -> dict[str, _T]:
        return {topic: self._result(topic, future) for topic, future in futures.items()}

    def _offsets(
        self,
        places: Sequence[TopicPartition],
        spec: OffsetSpec,
        isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> dict[TopicPartition, int]:
        asked = {KafkaTopicPartition(one.topic, one.partition): spec for one in places}

        def ask(timeout_s: float) -> dict[TopicPartition, int]:
            futures = self._client.list_offsets(
                asked, isolation_level=isolation_level, request_timeout=timeout_s
            )
            return {
                TopicPartition(one.topic, one.partition): self._result(
                    one.topic, future
                ).offset
                for one, future in futures.items()
            }

        return self._insist(ask)

    def _insist(self, ask: Callable[[float], _T]) -> _T:
        """Ask until the broker answers or the time is up.

        The client sets the pace: after a failure it reconnects, with pauses.
        """
        deadline = time.monotonic() + BROKER_TIMEOUT_S
        while True:
            remaining_s = deadline - time.monotonic()
            try:
                return ask(max(_TIMEOUT_MIN_S, remaining_s))
            except KafkaException as error:
                if (
                    error.args[0].code() not in _PASSING
                    or remaining_s <= _TIMEOUT_MIN_S
                ):
                    raise self._unreachable(error) from error

    def _result(self, topic: str, answer: Future[_T]) -> _T:
        try:
            return answer.result()
        except KafkaException as error:
            if error.args[0].code() not in _NO_TOPIC:
                raise
            raise ConfigurationError(
                "TOPIC_MISSING",
                saw=f"The broker at {self._bootstrap} has no topic {topic}.",
                why="A missing topic cannot be read.",
                fix="Create the topic, send events with tallyweir emit, or correct "
                "source.topic in the pipeline file.",
            ) from error

    def _unreachable(self, error: KafkaException) -> RetryableError:
        cause: KafkaError = error.args[0]
        return RetryableError(
            "KAFKA_UNREACHABLE",
            saw=f"The broker at {self._bootstrap} did not answer: {cause.str()}.",
            why="Only the broker knows the offsets.",
            fix="Check that the broker runs and that TALLYWEIR_KAFKA_BOOTSTRAP names "
            "it.",
        )


def _ids(described: Mapping[str, TopicDescription]) -> dict[str, str]:
    return {topic: str(one.topic_id) for topic, one in described.items()}


def _places(described: Mapping[str, TopicDescription]) -> list[TopicPartition]:
    return [
        TopicPartition(topic, partition.id)
        for topic, one in described.items()
        for partition in one.partitions
    ]
