"""Read records of topics: how many there are, and their times.

It reads independently of the pipelines: it joins no consumer group and commits no
offsets.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
)
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import ConfigResource, ResourceType

from tallyweir.services.kafka.clients import admin_client, looking_consumer
from tallyweir.sinks.kafka_admin import BROKER_TIMEOUT_S, kafka_unreachable
from tallyweir.sinks.protocol.offsets import OffsetRange, TopicPartition

#: Counting gives up after this many seconds without a record or an end.
SILENCE_MAX_S = 30.0

_RECORDS_FETCHED = 10_000


def count_committed(bootstrap: str, ranges: Sequence[OffsetRange]) -> tuple[int, ...]:
    """Count the committed records in each range, by reading all of them.

    Raises:
        RetryableError: ``KAFKA_UNREACHABLE``: nothing came for ``SILENCE_MAX_S``
            seconds.
    """
    return tuple(_count(bootstrap, part) for part in ranges)


def _count(bootstrap: str, wanted: OffsetRange) -> int:
    if wanted.length == 0:
        return 0
    place = wanted.topic_partition
    start = KafkaTopicPartition(place.topic, place.partition, wanted.from_offset)
    consumer = looking_consumer(bootstrap, "tallyweir-recount")
    with closing(consumer):
        consumer.assign([start])
        return _count_until(bootstrap, consumer, wanted.until_offset)


def _count_until(bootstrap: str, consumer: Consumer, until_offset: int) -> int:
    counted = 0
    give_up = time.monotonic() + SILENCE_MAX_S
    while time.monotonic() < give_up:
        for message in consumer.consume(_RECORDS_FETCHED, timeout=1.0):
            give_up = time.monotonic() + SILENCE_MAX_S
            error = message.error()
            if error is not None:
                # The log may end with a transaction's marker, which has an offset but
                # is not a record. Only the end of the partition shows that no record
                # follows.
                if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                    return counted
                raise kafka_unreachable(bootstrap, f"answered {error.str()}")
            offset = message.offset()
            assert offset is not None, "a record that was read has an offset"
            if offset >= until_offset:
                return counted
            counted += 1
            if offset == until_offset - 1:
                return counted
    raise kafka_unreachable(bootstrap, "sent nothing while records were counted")


class TopicTimes:
    """The times of records in topics.

    Args:
        bootstrap: The broker's address.
    """

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def offsets_at(
        self, moment: datetime, ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Find the first record of each partition that is not older than a moment.

        Args:
            moment: A time with a time zone; compared with the records' timestamps.
            ends: The ends of the partitions to search; the result for a partition
                without a record that new.

        Raises:
            RetryableError: ``KAFKA_UNREACHABLE``.
        """
        milliseconds = round(moment.timestamp() * 1000)
        with self._consumer() as consumer:
            found = consumer.offsets_for_times(
                [
                    KafkaTopicPartition(place.topic, place.partition, milliseconds)
                    for place in ends
                ],
                timeout=BROKER_TIMEOUT_S,
            )
        offsets = {
            TopicPartition(one.topic, one.partition): one.offset for one in found
        }
        # A negative offset means the end.
        return {
            place: offsets[place] if 0 <= offsets[place] < end else end
            for place, end in ends.items()
        }

    def times_at(
        self, places: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, datetime]:
        """Read when the records at or after some offsets were appended.

        Args:
            places: By partition, an offset before the end of its log.

        Returns:
            The times of the records that arrived within the timeout; other partitions
            are left out.

        Raises:
            RetryableError: ``KAFKA_UNREACHABLE``.
        """
        times: dict[TopicPartition, datetime] = {}
        with self._consumer() as consumer:
            for place, offset in places.items():
                consumer.assign(
                    [KafkaTopicPartition(place.topic, place.partition, offset)]
                )
                message = consumer.poll(BROKER_TIMEOUT_S)
                if message is None or message.error() is not None:
                    continue
                kind, milliseconds = message.timestamp()
                if kind != TIMESTAMP_NOT_AVAILABLE:
                    times[place] = datetime.fromtimestamp(milliseconds / 1000, tz=UTC)
        return times

    def retention_of(self, topics: tuple[str, ...]) -> dict[str, timedelta | None]:
        """Read how long each topic keeps records; None means without a limit.

        A limit on a topic's size is ignored.

        Raises:
            RetryableError: ``KAFKA_UNREACHABLE``.
        """
        admin = admin_client(self._bootstrap)
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        with self._translated():
            answers = admin.describe_configs(
                resources, request_timeout=BROKER_TIMEOUT_S
            )
            kept = {
                resource.name: int(answer.result()["retention.ms"].value)
                for resource, answer in answers.items()
            }
        return {
            topic: None if milliseconds < 0 else timedelta(milliseconds=milliseconds)
            for topic, milliseconds in kept.items()
        }

    @contextmanager
    def _consumer(self) -> Iterator[Consumer]:
        with (
            self._translated(),
            closing(looking_consumer(self._bootstrap, "tallyweir-offsets")) as consumer,
        ):
            yield consumer

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise kafka_unreachable(
                self._bootstrap, f"answered {error.args[0].str()}"
            ) from error
