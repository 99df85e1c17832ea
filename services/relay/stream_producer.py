"""Sends a stream's messages in Kafka transactions that fence older producers.

Kafka lets only one producer of a transactional id send. Creating a ``StreamProducer``
fences every older one of the same stream, even one in a process that is merely paused.
It finds the topics that it sends to, and creates missing ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as Report
from confluent_kafka.admin import ConfigResource, ResourceType
from confluent_kafka.cimpl import NewTopic

from tallyweir.services.kafka.clients import SILENT_LOG, admin_client
from tallyweir.services.kafka.topics import ANSWER_TIMEOUT_S
from tallyweir.services.relay.kafka_failures import kafka_failure
from tallyweir.services.relay.messages import HEADER_BYTES_MAX, Message
from tallyweir.sinks.kafka_settings import client_config

#: The broker aborts a transaction that is still open after this. It is shorter than the
#: idle limit of the relay's session in the home.
TRANSACTION_TIMEOUT_S = 25.0
#: The client limits nothing; the broker enforces the limit of each topic.
_MESSAGE_BYTES_MAX = 100_000_000
_BY_KEY = -1


class StreamProducer:
    """The one producer of a stream.

    Args:
        bootstrap: ``host:port``, several separated by commas.
        transactional_id: The stream's id, the same in every process.
        topics: Finds and makes the topics.

    Raises:
        TallyweirError: As ``kafka_failure``.

    Crash:
        Kafka aborts an older producer's open transaction. Consumers that read only
        committed messages see none of its messages.
    """

    def __init__(
        self, bootstrap: str, transactional_id: str, topics: RelayTopics
    ) -> None:
        self._topics = topics
        self._producer = Producer(
            {
                **client_config(bootstrap),
                "transactional.id": transactional_id,
                "transaction.timeout.ms": int(TRANSACTION_TIMEOUT_S * 1000),
                "message.max.bytes": _MESSAGE_BYTES_MAX,
                "compression.type": "lz4",
                # The partitioner of Kafka's Java clients, so that both put a key into
                # the same partition.
                "partitioner": "murmur2_random",
            },
            logger=SILENT_LOG,
        )
        try:
            self._producer.init_transactions(TRANSACTION_TIMEOUT_S)
        except KafkaException as error:
            raise kafka_failure(error.args[0], "fencing older relays") from error

    def send(self, messages: Sequence[Message]) -> None:
        """Send messages in order, all or none; return when the broker has them.

        After an error, do not use the producer again: the outcome of its transaction is
        unknown until the next producer has ended it.

        Raises:
            TallyweirError: As ``kafka_failure``.

        Crash:
            Before the broker's commit, no consumer of committed messages sees any of
            them. After it, all of them are there, even if the answer is lost.
        """
        partitions = [
            self._topics.ensure(message.topic, like=message.source_topic)
            for message in messages
        ]
        failures: list[KafkaError] = []

        def note(error: KafkaError | None, _report: Report) -> None:
            if error is not None:
                failures.append(error)

        try:
            self._producer.begin_transaction()
            for message, count in zip(messages, partitions, strict=True):
                self._producer.produce(
                    message.topic,
                    key=message.key,
                    value=message.value,
                    headers=[*message.headers],
                    partition=_BY_KEY
                    if message.source_partition is None
                    else message.source_partition % count,
                    on_delivery=note,
                )
                self._producer.poll(0)
            self._producer.commit_transaction(TRANSACTION_TIMEOUT_S)
        except KafkaException as error:
            # The commit only says that a message failed; its delivery report says why.
            cause = failures[0] if failures else error.args[0]
            raise kafka_failure(cause, "sending messages") from error


_SIZE = "max.message.bytes"
#: Room for all headers of a message, on top of the source topic's limit. Only the
#: detail can be long.
_HEADERS_BYTES = 2 * HEADER_BYTES_MAX
#: Number of partitions when the source topic is gone from the broker.
_PARTITIONS_WITHOUT_SOURCE = 1


class RelayTopics:
    """Counts the partitions of topics, and caches the counts."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = admin_client(bootstrap)
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
