"""What Kafka itself holds of a topic: where its log stands, and how many records.

It reads beside the pipelines: it joins no consumer group and commits no offsets.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import (
    Consumer,
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

#: Seconds until a silent broker is reported.
BROKER_TIMEOUT_S = 10.0

#: Seconds without a record or an end, after which counting is given up.
SILENCE_MAX_S = 30.0

_RECORDS_FETCHED = 10_000
_QUIET = {"log_level": 0}


class TopicLog:
    """One topic of a broker."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic

    def read_positions(self) -> dict[TopicPartition, BrokerPosition]:
        """Return id, log start and log end of every partition.

        The end is the last stable offset: what lies behind it belongs to a
        transaction that is still open, and nobody can read it yet.

        Raises:
            ConfigurationError: ``TOPIC_MISSING``.
            RetryableError: ``KAFKA_UNREACHABLE``.
        """
        with self._asking() as (admin, described):
            partitions = [part.id for part in described.partitions]
            starts = self._offsets(admin, partitions, OffsetSpec.earliest())
            ends = self._offsets(admin, partitions, OffsetSpec.latest())
        return {
            TopicPartition(self._topic, partition): BrokerPosition(
                topic_id=str(described.topic_id),
                log_start_offset=starts[partition],
                log_end_offset=ends[partition],
            )
            for partition in partitions
        }

    def read_high_watermarks(self) -> dict[TopicPartition, int]:
        """Return the offset behind the last record of every partition.

        Unlike the ends of ``read_positions`` it counts what belongs to transactions
        whose end is not in the log yet, and so may be read only later.

        Raises:
            As ``read_positions`` does.
        """
        everything = IsolationLevel.READ_UNCOMMITTED
        with self._asking() as (admin, described):
            partitions = [part.id for part in described.partitions]
            ends = self._offsets(admin, partitions, OffsetSpec.latest(), everything)
        return {TopicPartition(self._topic, part): ends[part] for part in partitions}

    def count_records(self, ranges: Sequence[OffsetRange]) -> tuple[int, ...]:
        """Count the committed records in each range, by reading all of them.

        Raises:
            RetryableError: ``KAFKA_UNREACHABLE``: nothing came for
                ``SILENCE_MAX_S`` seconds.
        """
        return tuple(self._count(part) for part in ranges)

    def _count(self, wanted: OffsetRange) -> int:
        if wanted.length == 0:
            return 0
        consumer = Consumer(
            {
                **client_config(self._bootstrap),
                "group.id": "tallyweir-recount",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                **_QUIET,
            }
        )
        try:
            place = wanted.topic_partition
            consumer.assign(
                [KafkaTopicPartition(place.topic, place.partition, wanted.from_offset)]
            )
            return self._count_until(consumer, wanted.until_offset)
        finally:
            consumer.close()

    def _count_until(self, consumer: Consumer, until_offset: int) -> int:
        counted = 0
        give_up = time.monotonic() + SILENCE_MAX_S
        while time.monotonic() < give_up:
            for message in consumer.consume(_RECORDS_FETCHED, timeout=1.0):
                give_up = time.monotonic() + SILENCE_MAX_S
                error = message.error()
                if error is not None:
                    # The log may end with a transaction's marker, which is an offset
                    # but never a record: only its end tells that nothing follows.
                    if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                        return counted
                    raise self._translate(error)
                offset = message.offset()
                assert offset is not None, "a record that was read has an offset"
                if offset >= until_offset:
                    return counted
                counted += 1
                if offset == until_offset - 1:
                    return counted
        raise self._unreachable("sent nothing while records were counted")

    @contextmanager
    def _asking(self) -> Iterator[tuple[AdminClient, TopicDescription]]:
        """Describe the topic, and translate what goes wrong in the block."""
        admin = AdminClient({**client_config(self._bootstrap), **_QUIET})
        try:
            answers = admin.describe_topics(
                TopicCollection([self._topic]), request_timeout=BROKER_TIMEOUT_S
            )
            yield admin, answers[self._topic].result()
        except KafkaException as error:
            raise self._translate(error.args[0]) from error

    def _offsets(
        self,
        admin: AdminClient,
        partitions: list[int],
        spec: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> dict[int, int]:
        answers: dict[KafkaTopicPartition, Any] = admin.list_offsets(
            {KafkaTopicPartition(self._topic, part): spec for part in partitions},
            isolation_level=isolation,
            request_timeout=BROKER_TIMEOUT_S,
        )
        return {
            part.partition: answer.result().offset for part, answer in answers.items()
        }

    def _translate(self, cause: KafkaError) -> ConfigurationError | RetryableError:
        if cause.code() in (
            KafkaError.UNKNOWN_TOPIC_OR_PART,
            KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - its public name
        ):
            return ConfigurationError(
                "TOPIC_MISSING",
                saw=f"The broker at {self._bootstrap} has no topic {self._topic}.",
                why="The pipeline's records are gone.",
                fix="Correct TALLYWEIR_KAFKA_BOOTSTRAP, or restore the topic.",
            )
        return self._unreachable(f"answered {cause.str()}")

    def _unreachable(self, what: str) -> RetryableError:
        return RetryableError(
            "KAFKA_UNREACHABLE",
            saw=f"The broker at {self._bootstrap} {what}.",
            why="Only Kafka knows what it holds.",
            fix="Check that the broker runs and that TALLYWEIR_KAFKA_BOOTSTRAP names "
            "it.",
        )
