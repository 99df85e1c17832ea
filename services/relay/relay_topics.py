"""Finds the topics that the relay sends to, and creates missing ones."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from confluent_kafka.cimpl import NewTopic

from tallyweir.services.kafka.topics import ANSWER_TIMEOUT_S, SILENT_LOG
from tallyweir.services.relay.kafka_failures import kafka_failure
from tallyweir.services.relay.messages import HEADER_BYTES_MAX
from tallyweir.sinks.kafka_settings import client_config

_SIZE = "max.message.bytes"
#: Room for all headers of a message, on top of the source topic's limit. Only the
#: detail can be long.
_HEADERS_BYTES = 2 * HEADER_BYTES_MAX
#: Number of partitions when the source topic is gone from the broker.
_PARTITIONS_WITHOUT_SOURCE = 1


class RelayTopics:
    """Counts the partitions of topics, and caches the counts."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({**client_config(bootstrap)}, logger=SILENT_LOG)
        self._partitions: dict[str, int] = {}

    def ensure(self, topic: str, *, like: str) -> int:
        """Create a topic if it is missing, and return its number of partitions.

        Args:
            topic: Topic that messages go to.
            like: A created topic gets as many partitions as this one, and room for its
                messages with headers added.

        Raises:
            TallyweirError: As ``kafka_failure``.
        """
        if topic not in self._partitions:
            self._partitions[topic] = self._find_or_make(topic, like)
        return self._partitions[topic]

    def forget(self) -> None:
        """Ask Kafka again next time: a topic may have changed."""
        self._partitions.clear()

    def _find_or_make(self, topic: str, like: str) -> int:
        try:
            found = self._count_partitions()
            if topic in found:
                return found[topic]
            partitions = found.get(like, _PARTITIONS_WITHOUT_SOURCE)
            self._make(topic, partitions, like=like if like in found else None)
        except KafkaException as error:
            raise kafka_failure(error.args[0], f"looking for topic {topic}") from error
        return partitions

    def _count_partitions(self) -> dict[str, int]:
        # List all topics: a broker that creates topics on demand would create one that
        # is asked for by name.
        metadata = self._admin.list_topics(timeout=ANSWER_TIMEOUT_S)
        return {
            name: len(topic.partitions)
            for name, topic in metadata.topics.items()
            if topic.error is None
        }

    def _make(self, topic: str, partitions: int, *, like: str | None) -> None:
        config = {}
        if like is not None:
            config[_SIZE] = str(self._read_bytes_max(like) + _HEADERS_BYTES)
        # The broker's own default decides the replication factor.
        new = NewTopic(
            topic, num_partitions=partitions, replication_factor=-1, config=config
        )
        try:
            self._admin.create_topics([new], operation_timeout=ANSWER_TIMEOUT_S)[
                topic
            ].result(timeout=ANSWER_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def _read_bytes_max(self, topic: str) -> int:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        future = self._admin.describe_configs([resource])[resource]
        entries = future.result(timeout=ANSWER_TIMEOUT_S)
        return int(entries[_SIZE].value)
