"""What the broker says about a topic: its id, its partitions, where its log stands."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec, TopicDescription

from sinks.protocol.errors import ConfigurationError, RetryableError
from sinks.protocol.offsets import TopicPartition
from sinks.protocol.recovery import BrokerPosition

#: Seconds until a silent broker is reported.
BROKER_TIMEOUT_S = 10.0


class KafkaAdmin:
    """Asks the broker about one topic; reads no events."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        # Errors reach the caller as exceptions; librdkafka need not print them too.
        self._client = AdminClient(
            {"bootstrap.servers": bootstrap, "log_level": 0},
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

    def _describe(self) -> TopicDescription:
        futures = self._client.describe_topics(
            TopicCollection([self._topic]), request_timeout=BROKER_TIMEOUT_S
        )
        try:
            description: TopicDescription = futures[self._topic].result()
        except KafkaException as error:
            raise self._translate(error) from error
        return description

    def _offsets(self, partitions: list[int], spec: OffsetSpec) -> dict[int, int]:
        asked = {
            KafkaTopicPartition(self._topic, partition): spec
            for partition in partitions
        }
        futures = self._client.list_offsets(
            asked,
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=BROKER_TIMEOUT_S,
        )
        try:
            return {
                answered.partition: future.result().offset
                for answered, future in futures.items()
            }
        except KafkaException as error:
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
