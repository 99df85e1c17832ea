"""Reads from Kafka single records, which people name ``TOPIC/PARTITION/OFFSET``.

The home database lacks the headers of dead letters. They are at the record's position,
for as long as the topic keeps it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaTopicPartition

from tallyweir.services.kafka.clients import looking_consumer
from tallyweir.services.kafka.topic_log import SILENCE_MAX_S
from tallyweir.sinks.kafka_admin import BROKER_TIMEOUT_S, kafka_unreachable
from tallyweir.sinks.postgres.steering import RecordPosition
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.offsets import is_kafka_topic

Headers = tuple[tuple[str, bytes | None], ...]

#: Beyond this distance, it is faster to seek, which takes a round trip or two. Below
#: it, the consumer reads over the records between, many at a time.
_READ_OVER_MAX = 5_000
_POLL_S = 0.5
#: Letters lie far apart, so records fetched ahead are wasted.
_FETCHED_AHEAD_KB = 2_048
_NO_TOPIC = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - its public name
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 - its public name
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRecord:
    """A record by its position, with the content that must be found there."""

    position: RecordPosition
    key: bytes | None = field(repr=False)
    payload: bytes | None = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRecord:
    """A record as its topic holds it."""

    key: bytes | None = field(repr=False)
    payload: bytes | None = field(repr=False)
    headers: Headers = field(repr=False)


class SourceRecords:
    """Reads single records of topics; joins no group and commits no offsets.

    Args:
        bootstrap: ``host:port``, several separated by commas.
    """

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._consumer = looking_consumer(
            bootstrap,
            "tallyweir-redrive",
            {"queued.max.messages.kbytes": _FETCHED_AHEAD_KB},
        )

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    def read_headers(
        self, records: Iterable[KnownRecord]
    ) -> dict[RecordPosition, Headers]:
        """Return the headers of each record that its topic still holds.

        If the key or payload at that position differs, the topic was deleted and
        created again, and the record counts as gone.

        Args:
            records: Records in the order of their positions.

        Raises:
            RetryableError: ``KAFKA_UNREACHABLE``.
        """
        found: dict[RecordPosition, Headers] = {}
        partitions = groupby(
            records, key=lambda one: (one.position.topic, one.position.partition)
        )
        for (topic, partition), group in partitions:
            wanted = self._kept(topic, partition, list(group))
            for record, message in self._read(topic, partition, wanted):
                if (message.key(), message.value()) == (record.key, record.payload):
                    found[record.position] = _headers(message)
        return found

    def read_whole(
        self, positions: Iterable[RecordPosition]
    ) -> dict[RecordPosition, ReadRecord]:
        """Return the records at some positions, without those that are gone.

        Raises:
            RetryableError: ``KAFKA_UNREACHABLE``.
        """
        found: dict[RecordPosition, ReadRecord] = {}
        ordered = sorted(
            positions, key=lambda one: (one.topic, one.partition, one.offset)
        )
        for (topic, partition), group in groupby(
            ordered, key=lambda one: (one.topic, one.partition)
        ):
            asked = [KnownRecord(position=one, key=None, payload=None) for one in group]
            wanted = self._kept(topic, partition, asked)
            for record, message in self._read(topic, partition, wanted):
                found[record.position] = ReadRecord(
                    key=_bytes(message.key()),
                    payload=_bytes(message.value()),
                    headers=_headers(message),
                )
        return found

    def _kept(
        self, topic: str, partition: int, records: Sequence[KnownRecord]
    ) -> list[KnownRecord]:
        """Leave out records whose offsets are outside the topic's log."""
        if not is_kafka_topic(topic):
            # No topic can have that name, so do not ask Kafka.
            return []
        place = KafkaTopicPartition(topic, partition)
        try:
            start, end = self._consumer.get_watermark_offsets(
                place, timeout=BROKER_TIMEOUT_S
            )
        except KafkaException as error:
            if error.args[0].code() in _NO_TOPIC:
                return []
            raise kafka_unreachable(
                self._bootstrap, f"answered {error.args[0].str()}"
            ) from error
        return [one for one in records if start <= one.position.offset < end]

    def _read(
        self, topic: str, partition: int, records: Sequence[KnownRecord]
    ) -> Iterator[tuple[KnownRecord, Message]]:
        reached: int | None = None
        ahead: Message | None = None
        for record in records:
            wanted = record.position.offset
            if reached is None or wanted > reached + _READ_OVER_MAX:
                place = KafkaTopicPartition(topic, partition, wanted)
                self._consumer.assign([place])
                ahead = None
            if ahead is None or _offset(ahead) < wanted:
                ahead = self._next_from(wanted)
            if ahead is None:
                # This is the end of the log: later records were compacted away.
                return
            reached = _offset(ahead)
            if reached == wanted:
                yield record, ahead

    def _next_from(self, offset: int) -> Message | None:
        """Return the first record from an offset on; None at the end of the log."""
        give_up = time.monotonic() + SILENCE_MAX_S
        while time.monotonic() < give_up:
            message = self._consumer.poll(_POLL_S)
            if message is None:
                continue
            error = message.error()
            if error is None:
                if _offset(message) >= offset:
                    return message
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                return None
            else:
                raise kafka_unreachable(self._bootstrap, f"answered {error.str()}")
        raise kafka_unreachable(self._bootstrap, "sent nothing while a record was read")


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None, "a record that was read has an offset"
    return offset


def _bytes(content: object) -> bytes | None:
    assert content is None or isinstance(content, bytes), "nothing decodes it"
    return content


def _headers(message: Message) -> Headers:
    return tuple(
        (name, value.encode() if isinstance(value, str) else value)
        for name, value in _as_list(message.headers())
    )


def _as_list(
    headers: object,
) -> list[tuple[str, str | bytes | None]]:
    assert headers is None or isinstance(headers, list)
    return headers or []


_DIGITS_MAX = 18


def parse_record(text: str) -> RecordPosition:
    """Read the name of a record.

    Raises:
        ConfigurationError: ``RECORD_MALFORMED``.
    """
    topic, *place = text.rsplit("/", 2)
    if len(place) != 2 or not all(map(_is_number, place)):  # noqa: PLR2004
        raise ConfigurationError(
            "RECORD_MALFORMED",
            saw=f"{text[:300]!r} does not name a record.",
            why="A dead letter is named by the place of its record in Kafka.",
            fix="Write TOPIC/PARTITION/OFFSET, as dead-letters list does.",
        )
    return RecordPosition(topic=topic, partition=int(place[0]), offset=int(place[1]))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
