"""Finds an event by its ID in the Kafka records that a batch has read."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaException,
    Message,
)
from confluent_kafka import TopicPartition as KafkaTopicPartition

from tallyweir.schemas.codec import EventRecord, decode
from tallyweir.schemas.errors import DecodeError
from tallyweir.schemas.event_contracts import EventContracts
from tallyweir.schemas.pipeline.events.kafka_columns import KAFKA_KEY
from tallyweir.schemas.pipeline.events.source import KAFKA_TIMESTAMP
from tallyweir.services.kafka.clients import looking_consumer
from tallyweir.sinks.kafka_admin import BROKER_TIMEOUT_S
from tallyweir.sinks.protocol.column_names import HEADER_PREFIX, stored_name
from tallyweir.sinks.protocol.offsets import OffsetRange, parse_position

#: A batch may have millions of records, and a person waits for the answer.
_RECORDS_MAX = 300_000
_FETCHED = 10_000
_EPOCH = datetime.fromtimestamp(0, UTC)
_KAFKA_TOPIC = "kafka_topic"
_CE_ID, _CE_SOURCE = "ce_id", stored_name(f"{HEADER_PREFIX}ce_source")


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedEvent:
    """An event, and how the records of its pipeline are read.

    Attributes:
        event_id: Its ID as the ledger has it.
        source: Its ``ce_source``; None if it has none.
        contracts: The contracts of values and keys.
        id_columns: The columns with the ID, or its parts, as tables call them.
        id_header: The header that carries the ID. Without either, the ID is the
            position.
    """

    event_id: str
    source: str | None = None
    contracts: EventContracts
    id_columns: tuple[str, ...] = ()
    id_header: str | None = None

    def narrowed(self, part: OffsetRange) -> OffsetRange | None:
        """Return the offsets of a range that may have the event; None for none."""
        if self.id_columns or self.id_header is not None:
            return part
        position = parse_position(self.event_id)
        if position is None or position[0] != part.topic_partition:
            return None
        offset = position[1]
        if not part.from_offset <= offset < part.until_offset:
            return None
        return OffsetRange(
            topic_partition=part.topic_partition,
            from_offset=offset,
            until_offset=offset + 1,
        )

    def read(self, message: Message) -> EventRecord | None:
        """Return the columns of a record; None if it is not the event."""
        columns = _columns(message, self.contracts)
        if columns is None or self._id_of(columns) not in {None, self.event_id}:
            return None
        return columns

    def _id_of(self, columns: EventRecord) -> str | None:
        """Write an ID as the ledger does; None if the position is the ID."""
        if self.id_header is not None:
            if self.id_header == _CE_ID and (columns.get(_CE_SOURCE) or "") != (
                self.source or ""
            ):
                return ""
            found = columns.get(stored_name(f"{HEADER_PREFIX}{self.id_header}"))
            return found if isinstance(found, str) else ""
        parts = [columns.get(name) for name in self.id_columns]
        if None in parts:
            return ""
        if len(parts) > 1:
            return f"[{','.join(map(_json, parts))}]"
        return str(_plain(parts[0])) if parts else None


def find_event(
    bootstrap: str, ranges: Iterable[OffsetRange], wanted: WantedEvent
) -> EventRecord | None:
    """Return the columns that the record of an event gives, the first of several.

    None if it is missing or not found in time.

    Args:
        bootstrap: ``host:port``, several separated by commas.
        ranges: Offset ranges to search.
        wanted: The event.
    """
    with closing(looking_consumer(bootstrap, "tallyweir-why")) as consumer:
        try:
            for part in filter(None, map(wanted.narrowed, ranges)):
                for message in _read(consumer, part):
                    event = wanted.read(message)
                    if event is not None:
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


def _columns(message: Message, contracts: EventContracts) -> EventRecord | None:
    """Return all that a record gives; None if it is no event."""
    value, key = message.value(), message.key()
    found: dict[str, object] = dict(_of_kafka(message))
    try:
        if contracts.key is not None:
            read: EventRecord = {}
            if isinstance(key, bytes):
                read = decode(key, contracts.key.contracts.writers)
            prefix = contracts.key.prefix
            found |= {one.name: None for one in contracts.key.fields}
            found |= {f"{prefix}{name}": one for name, one in read.items()}
        return found | decode(
            value if isinstance(value, bytes) else None, contracts.writers
        )
    except DecodeError:
        return None


def _of_kafka(message: Message) -> Iterator[tuple[str, object]]:
    """Yield Kafka's columns, by the names that tables have for them."""
    kind, millis = message.timestamp()
    at = None
    if kind != TIMESTAMP_NOT_AVAILABLE:
        at = _EPOCH + timedelta(milliseconds=millis)
    yield KAFKA_KEY, message.key()
    yield KAFKA_TIMESTAMP, at
    yield _KAFKA_TOPIC, message.topic()
    # The last of several headers of a name counts.
    headers = message.headers()
    for name, value in headers if isinstance(headers, list) else ():
        try:
            text = value.decode() if isinstance(value, bytes) else value
        except UnicodeDecodeError:
            text = None
        yield stored_name(f"{HEADER_PREFIX}{name}"), text


def _plain(value: object) -> object:
    return value.hex() if isinstance(value, bytes) else value


def _json(part: object) -> str:
    """Write a part of an ID of several values."""
    if isinstance(part, int | Decimal):
        return format(part, "f") if isinstance(part, Decimal) else str(part)
    return json.dumps(_plain(part), ensure_ascii=False, default=str)
