"""Sends a stream's messages in Kafka transactions that fence older producers.

Kafka lets only one producer of a transactional id send. Creating a ``StreamProducer``
fences every older one of the same stream, even one in a process that is merely paused.
"""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as Report

from tallyweir.services.kafka.topics import SILENT_LOG
from tallyweir.services.relay.kafka_failures import kafka_failure
from tallyweir.services.relay.messages import Message
from tallyweir.services.relay.relay_topics import RelayTopics
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
