"""Ask the broker about topics: their ids, partitions and offsets."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import cached_property
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
from tallyweir.sinks.protocol.errors import (
    ConfigurationError,
    RetryableError,
    TallyweirError,
)
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.recovery import BrokerPosition

#: Seconds after which a silent broker is reported, where a person or a page waits.
BROKER_TIMEOUT_S = 10.0
#: The same for a driver. A broker that restarts or hands its partitions over is back
#: within ten.
DRIVER_TIMEOUT_S = 15.0
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


class KafkaAdmin:
    """Asks the broker about topics; reads no events, and nothing without topics.

    Args:
        bootstrap: ``host:port``, several separated by commas.
        topics: The topics.
        timeout_s: Seconds after which a silent broker is reported; without it,
            ``BROKER_TIMEOUT_S``.
    """

    def __init__(
        self, bootstrap: str, *topics: str, timeout_s: float | None = None
    ) -> None:
        self._bootstrap = bootstrap
        self._topics = sorted(topics)
        self._timeout_s = BROKER_TIMEOUT_S if timeout_s is None else timeout_s

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
        futures = self._begin_describing(self._timeout_s)

        def answer() -> dict[str, str]:
            try:
                return _ids(_all(self._results(futures)))
            except KafkaException:
                return self.read_topic_ids()

        return answer

    def read_positions(self) -> dict[TopicPartition, BrokerPosition]:
        """Return id, log start and log end of every partition of the topics.

        The log end is the last stable offset, up to which committed events can be
        read.

        Raises:
            ConfigurationError: ``TOPIC_MISSING``.
            RetryableError: ``KAFKA_UNREACHABLE``.
        """
        return self._positions(self._describe()) if self._topics else {}

    def read_there(
        self,
    ) -> tuple[dict[TopicPartition, BrokerPosition] | None, Sequence[TallyweirError]]:
        """Return the positions of the topics that exist, and the errors found.

        The positions are None if Kafka does not answer.
        """
        if not self._topics:
            return {}, ()
        missing: Sequence[TallyweirError] = ()
        try:
            described, missing = self._describe_there()
            return self._positions(described), missing
        except TallyweirError as error:
            return None, (*missing, error)

    @cached_property
    def _client(self) -> AdminClient:
        # Errors reach the caller as exceptions, so librdkafka need not print them.
        return AdminClient(
            {**client_config(self._bootstrap), "log_level": 0}, logger=None
        )

    def _positions(
        self, described: Mapping[str, TopicDescription]
    ) -> dict[TopicPartition, BrokerPosition]:
        ids = {
            TopicPartition(topic, partition.id): str(one.topic_id)
            for topic, one in described.items()
            for partition in one.partitions
        }
        places = list(ids)
        starts = self._offsets(places, OffsetSpec.earliest())
        # Read these before the stable ends; otherwise records that arrive in between
        # would count as held back.
        all_ends = self._offsets(
            places, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED
        )
        ends = self._offsets(places, OffsetSpec.latest())
        return {
            place: BrokerPosition(
                topic_id=topic_id,
                log_start_offset=starts[place],
                log_end_offset=ends[place],
                held_back=max(0, all_ends[place] - ends[place]),
            )
            for place, topic_id in ids.items()
        }

    def _describe(self) -> dict[str, TopicDescription]:
        return _all(self._describe_there())

    def _describe_there(
        self,
    ) -> tuple[dict[str, TopicDescription], list[ConfigurationError]]:
        return self._insist(
            lambda timeout_s: self._results(self._begin_describing(timeout_s))
        )

    def _begin_describing(
        self, timeout_s: float
    ) -> Mapping[str, Future[TopicDescription]]:
        return self._client.describe_topics(
            TopicCollection(self._topics), request_timeout=timeout_s
        )

    def _results(
        self, futures: Mapping[str, Future[_T]]
    ) -> tuple[dict[str, _T], list[ConfigurationError]]:
        found: dict[str, _T] = {}
        missing = []
        for topic, future in futures.items():
            try:
                found[topic] = self._result(topic, future)
            except ConfigurationError as error:
                missing.append(error)
        return found, missing

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
        deadline = time.monotonic() + self._timeout_s
        while True:
            remaining_s = deadline - time.monotonic()
            try:
                return ask(max(_TIMEOUT_MIN_S, remaining_s))
            except KafkaException as error:
                cause: KafkaError = error.args[0]
                if cause.code() not in _PASSING or remaining_s <= _TIMEOUT_MIN_S:
                    raise kafka_unreachable(
                        self._bootstrap, f"did not answer: {cause.str()}"
                    ) from error

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
                fix="Create or restore the topic, send events with tallyweir emit, or "
                "correct source.topic or TALLYWEIR_KAFKA_BOOTSTRAP.",
            ) from error


def kafka_unreachable(bootstrap: str, what: str) -> RetryableError:
    """Return the error of a broker that gave no answer, or a useless one.

    Args:
        bootstrap: ``host:port``, several separated by commas.
        what: What the broker did, such as "did not answer".
    """
    return RetryableError(
        "KAFKA_UNREACHABLE",
        saw=f"The broker at {bootstrap} {what}.",
        why="Only Kafka knows what it holds.",
        fix="Check that the broker runs, that TALLYWEIR_KAFKA_BOOTSTRAP names it, and "
        "that the user may describe and read the topics and their settings.",
    )


def _all(answers: tuple[dict[str, _T], list[ConfigurationError]]) -> dict[str, _T]:
    found, missing = answers
    if missing:
        raise missing[0]
    return found


def _ids(described: Mapping[str, TopicDescription]) -> dict[str, str]:
    return {topic: str(one.topic_id) for topic, one in described.items()}
