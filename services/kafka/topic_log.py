"""Read topics: how many records there are, and which was the first at a moment.

It reads independently of the pipelines: it joins no consumer group and commits no
offsets.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import datetime

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition

from tallyweir.services.kafka.clients import looking_consumer
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


def find_offsets_at(
    bootstrap: str, moment: datetime, ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Find the first record of each partition that is not older than a moment.

    Args:
        bootstrap: ``host:port``, several separated by commas.
        moment: A time with a time zone; compared with the records' timestamps.
        ends: The ends of the partitions to search; the result for a partition
            without a record that new.

    Raises:
        RetryableError: ``KAFKA_UNREACHABLE``.
    """
    milliseconds = round(moment.timestamp() * 1000)
    consumer = looking_consumer(bootstrap, "tallyweir-offsets")
    with closing(consumer):
        try:
            found = consumer.offsets_for_times(
                [
                    KafkaTopicPartition(place.topic, place.partition, milliseconds)
                    for place in ends
                ],
                timeout=BROKER_TIMEOUT_S,
            )
        except KafkaException as error:
            raise kafka_unreachable(
                bootstrap, f"answered {error.args[0].str()}"
            ) from error
    offsets = {TopicPartition(one.topic, one.partition): one.offset for one in found}
    # A negative offset means the end.
    return {
        place: offsets[place] if 0 <= offsets[place] < end else end
        for place, end in ends.items()
    }
