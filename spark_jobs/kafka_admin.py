"""What the broker says about a topic: its id, its partitions, where its log stands."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
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

from sinks.kafka_settings import client_config
from sinks.protocol.errors import ConfigurationError, RetryableError
from sinks.protocol.offsets import OffsetRange, TopicPartition
from sinks.protocol.recovery import BrokerPosition

#: Seconds until a silent broker is reported. A broker that restarts or hands its
#: partitions over is back within ten.
BROKER_TIMEOUT_S = 15.0
_TIMEOUT_MIN_S = 0.1

#: What a broker that goes down gives to the requests at hand. Such a request is sent
#: again and waits for a broker; one that timed out has waited already.
_PASSING = frozenset(
    {
        KafkaError._TRANSPORT,  # noqa: SLF001 - its public name
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
    }
)

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """What may keep a pipeline from reading on although nothing fails.

    Attributes:
        topic_id: Kafka's id of the topic.
        ends: The last stable offset of each partition, up to which it can be read.
        held: From the last stable offset to the end of each partition where the two
            differ: an open transaction of a producer keeps these from being read.
    """

    topic_id: str
    ends: Mapping[TopicPartition, int]
    held: tuple[OffsetRange, ...]


class KafkaAdmin:
    """Asks the broker about one topic; reads no events."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        # Errors reach the caller as exceptions; librdkafka need not print them too.
        self._client = AdminClient(
            {**client_config(bootstrap), "log_level": 0},
            logger=None,
        )

    def read_topic_id(self) -> str:
        """Return Kafka's id of the topic, which a topic made anew does not share.

        Raises:
            ConfigurationError: ``TOPIC_MISSING``.
            RetryableError: ``KAFKA_UNREACHABLE``.
        """
        return str(self._describe().topic_id)

    def read_positions(self) -> Mapping[TopicPartition, BrokerPosition]:
        """Return id, log start and log end of every partition of the topic.

        The log end is the last stable offset, up to which committed events can be
        read.

        Raises:
            ConfigurationError: ``TOPIC_MISSING``.
            RetryableError: ``KAFKA_UNREACHABLE``.
        """
        description = self._describe()
        partitions = [partition.id for partition in description.partitions]
        starts = self._offsets(partitions, OffsetSpec.earliest())
        ends = self._offsets(partitions, OffsetSpec.latest())
        return {
            TopicPartition(self._topic, partition): BrokerPosition(
                topic_id=str(description.topic_id),
                log_start_offset=starts[partition],
                log_end_offset=ends[partition],
            )
            for partition in partitions
        }

    def read_state(self) -> TopicState:
        """Return the topic's id, and what open transactions hold.

        Raises:
            ConfigurationError: ``TOPIC_MISSING``.
            RetryableError: ``KAFKA_UNREACHABLE``.
        """
        description = self._describe()
        partitions = [partition.id for partition in description.partitions]
        stable = self._offsets(partitions, OffsetSpec.latest())
        ends = self._offsets(
            partitions, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED
        )
        return TopicState(
            topic_id=str(description.topic_id),
            ends={TopicPartition(self._topic, part): stable[part] for part in stable},
            held=tuple(
                OffsetRange(
                    topic_partition=TopicPartition(self._topic, partition),
                    from_offset=stable[partition],
                    until_offset=ends[partition],
                )
                for partition in sorted(partitions)
                if stable[partition] < ends[partition]
            ),
        )

    def _describe(self) -> TopicDescription:
        def ask(timeout_s: float) -> TopicDescription:
            futures = self._client.describe_topics(
                TopicCollection([self._topic]), request_timeout=timeout_s
            )
            description: TopicDescription = futures[self._topic].result()
            return description

        return self._insist(ask)

    def _offsets(
        self,
        partitions: list[int],
        spec: OffsetSpec,
        isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> dict[int, int]:
        def ask(timeout_s: float) -> dict[int, int]:
            futures = self._client.list_offsets(
                {KafkaTopicPartition(self._topic, part): spec for part in partitions},
                isolation_level=isolation_level,
                request_timeout=timeout_s,
            )
            return {
                answered.partition: future.result().offset
                for answered, future in futures.items()
            }

        return self._insist(ask)

    def _insist(self, ask: Callable[[float], _T]) -> _T:
        """Ask until the broker answers or the time is up.

        The client paces this: after a failure it connects anew, with pauses.
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
                    raise self._translate(error) from error

    def _translate(self, error: KafkaException) -> ConfigurationError | RetryableError:
        cause: KafkaError = error.args[0]
        if cause.code() in (
            KafkaError.UNKNOWN_TOPIC_OR_PART,
            KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - its public name
        ):
            return ConfigurationError(
                "TOPIC_MISSING",
                saw=f"The broker at {self._bootstrap} has no topic {self._topic}.",
                why="There is nothing to read.",
                fix="Create the topic, send events with tallyweir emit, or correct "
                "source.topic in the pipeline file.",
            )
        return RetryableError(
            "KAFKA_UNREACHABLE",
            saw=f"The broker at {self._bootstrap} did not answer: {cause.str()}.",
            why="Offsets cannot be checked without it.",
            fix="Check that the broker runs and that TALLYWEIR_KAFKA_BOOTSTRAP names "
            "it.",
        )
