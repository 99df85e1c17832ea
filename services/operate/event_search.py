"""Finds an event by its ID in the Kafka records that a batch has read."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import closing

from confluent_kafka import Consumer, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaTopicPartition

from tallyweir.schemas.codec import EventRecord, decode
from tallyweir.schemas.contract import Contract
from tallyweir.schemas.errors import DecodeError
from tallyweir.services.kafka.clients import looking_consumer
from tallyweir.sinks.kafka_admin import BROKER_TIMEOUT_S
from tallyweir.sinks.protocol.offsets import OffsetRange

#: A batch may have millions of records, and a person waits for the answer.
_RECORDS_MAX = 300_000
_FETCHED = 10_000


def find_event(
    bootstrap: str,
    ranges: Iterable[OffsetRange],
    writers: Mapping[int, Contract],
    *,
    id_field: str,
    event_id: str,
) -> EventRecord | None:
    """Return the first event with an ID; None if it is missing or not found in time.

    Args:
        bootstrap: ``host:port``, several separated by commas.
        ranges: Offset ranges to search.
        writers: The contracts of the events, by schema id.
        id_field: The field that holds the ID.
        event_id: The ID as people write it.
    """
    with closing(looking_consumer(bootstrap, "tallyweir-why")) as consumer:
        try:
            for part in ranges:
                for message in _read(consumer, part):
                    event = _decoded(message, writers)
                    if event is not None and str(event.get(id_field)) == event_id:
                        return event
        except KafkaException:
            return None
    return None


def _read(consumer: Consumer, part: OffsetRange) -> Iterable[Message]:
    place = part.topic_partition
    consumer.assign(
        [KafkaTopicPartition(place.topic, place.partition, part.from_offset)]
    )
    read = 0
    give_up = time.monotonic() + BROKER_TIMEOUT_S
    while read < _RECORDS_MAX and time.monotonic() < give_up:
        for message in consumer.consume(_FETCHED, timeout=0.2):
            offset = message.offset()
            # An error means the end of the log, or that the offset is gone from it.
            if message.error() is not None or offset is None:
                return
            if offset >= part.until_offset:
                return
            read += 1
            yield message
            if offset == part.until_offset - 1:
                return


def _decoded(message: Message, writers: Mapping[int, Contract]) -> EventRecord | None:
    value = message.value()
    if not isinstance(value, bytes):
        return None
    try:
        return decode(value, writers)
    except DecodeError:
        return None
