"""Sends a stream's messages in Kafka transactions, under an id that fences.

Kafka lets one producer of a transactional id send. Making a ``StreamProducer`` shuts
out every older one of the same stream, also one whose process is merely paused.
"""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as Report

from services.kafka.topics import SILENT_LOG
from services.relay.kafka_failures import kafka_failure
from services.relay.messages import Message
from services.relay.relay_topics import RelayTopics
from sinks.kafka_settings import client_config

#: A transaction that is not ended by then is aborted by the broker. Shorter than the
#: home lets the relay's session be idle.
TRANSACTION_TIMEOUT_S = 25.0
#: The client holds nothing back; what a topic takes, the broker says.
_MESSAGE_BYTES_MAX = 100_000_000
_BY_KEY = -1


class StreamProducer:
    """The one producer of a stream.

    Args:
        bootstrap: ``host:port``, several separated by commas.
        transactional_id: The stream's, the same in every process.
        topics: Finds and makes the topics.

    Raises:
        TallyweirError: As ``kafka_failure``.

    Crash:
        An older producer's open transaction is aborted; consumers that read committed
        messages only see nothing of it.
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
                # That of Kafka's Java clients, so that keys meet those of others.
                "partitioner": "murmur2_random",
            },
            logger=SILENT_LOG,
        )
        try:
            self._producer.init_transactions(TRANSACTION_TIMEOUT_S)
        except KafkaException as error:
            raise kafka_failure(error.args[0], "fencing older relays") from error

    def send(self, messages: Sequence[Message]) -> None:
        """Send messages in order, all or none; returns when the broker has them.

        After an error the producer is of no more use: what became of the transaction
        is unknown until the next producer has ended it.

        Raises:
            TallyweirError: As ``kafka_failure``.

        Crash:
            Before the broker's commit no consumer of committed messages sees any.
            After it all of them are there, whether we hear of it or not.
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
            # The commit only says that a message failed, its report says why.
            cause = failures[0] if failures else error.args[0]
            raise kafka_failure(cause, "sending messages") from error
