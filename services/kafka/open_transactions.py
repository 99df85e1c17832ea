"""Find the records in Kafka that wait behind open transactions, and their producers.

A consumer of committed records sees none of these records: its log ends before them.
Brokers note open transactions in an internal topic, which this module reads. Its format
is that of Kafka's ``TransactionLogKey`` and ``TransactionLogValue``.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition

from tallyweir.services.kafka.clients import looking_consumer
from tallyweir.sinks.kafka_admin import BROKER_TIMEOUT_S
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.recovery import BrokerPosition

_LOG = "__transaction_state"
#: The states of transactions that are ongoing, or about to be committed or aborted.
_OPEN = frozenset({1, 2, 3})
_FETCHED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """A transaction that its producer has not ended.

    Attributes:
        transactional_id: The id in the producer's settings.
        began_at: When the producer sent its first record.
        places: The partitions that it has written to.
    """

    transactional_id: str
    producer_id: int
    began_at: datetime
    places: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBack:
    """The offsets of a partition that readers of committed records cannot read yet.

    Attributes:
        stable_offset: The first waiting offset.
        offsets: The number of waiting offsets, including ends of transactions.
        transactions: The transactions that hold them back; empty if they are unknown.
    """

    place: TopicPartition
    stable_offset: int
    offsets: int
    transactions: tuple[OpenTransaction, ...]

    def told(self) -> str:
        """Return it as a sentence."""
        waits = (
            f"{self.offsets:,} offsets of {self.place} from {self.stable_offset:,} on "
            "wait behind an open transaction"
        )
        if not self.transactions:
            return (
                f"{waits}; kafka-transactions.sh describe-producers --topic "
                f"{self.place.topic} --partition {self.place.partition} shows whose."
            )
        whose = " and ".join(
            f"{one.transactional_id!r} (producer id {one.producer_id}), open since "
            f"{one.began_at:%Y-%m-%d %H:%M:%S} UTC"
            for one in self.transactions
        )
        return f"{waits}, of the transactional id {whose}."


def find_held_back(
    bootstrap: str, broker: Mapping[TopicPartition, BrokerPosition]
) -> tuple[HeldBack, ...]:
    """Find the offsets that wait behind open transactions; raises nothing.

    Args:
        bootstrap: ``host:port``, several separated by commas.
        broker: The positions of the topics in Kafka.
    """
    held = {place: at for place, at in sorted(broker.items()) if at.held_back}
    if not held:
        return ()
    try:
        found = _read_open(bootstrap)
    except KafkaException:
        # Without the right to read that topic, the offsets are still worth reporting.
        found = []
    return tuple(
        HeldBack(
            place=place,
            stable_offset=at.log_end_offset,
            offsets=at.held_back,
            transactions=tuple(one for one in found if place in one.places),
        )
        for place, at in held.items()
    )


def _read_open(bootstrap: str) -> list[OpenTransaction]:
    consumer = looking_consumer(
        bootstrap, "tallyweir-transactions", {"auto.offset.reset": "earliest"}
    )
    with closing(consumer):
        known = consumer.list_topics(_LOG, timeout=BROKER_TIMEOUT_S).topics[_LOG]
        if known.error is not None:
            raise KafkaException(known.error)
        consumer.assign([KafkaTopicPartition(_LOG, one, 0) for one in known.partitions])
        newest = _read_newest(consumer, len(known.partitions))
    return list(open_transactions(newest.items()))


def _read_newest(consumer: Consumer, partitions: int) -> dict[bytes, bytes]:
    newest: dict[bytes, bytes] = {}
    ended = 0
    give_up = time.monotonic() + BROKER_TIMEOUT_S
    while ended < partitions:
        if time.monotonic() > give_up:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001
        for message in consumer.consume(_FETCHED, timeout=0.2):
            error = message.error()
            if error is not None:
                if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001
                    raise KafkaException(error)
                ended += 1
                continue
            key, value = message.key(), message.value()
            assert isinstance(key, bytes), "the brokers' keys are no text"
            if value is None:
                newest.pop(key, None)
            else:
                assert isinstance(value, bytes)
                newest[key] = value
    return newest


def open_transactions(
    entries: Iterable[tuple[bytes, bytes]],
) -> Iterable[OpenTransaction]:
    """Yield the open transactions among the newest entries of the brokers' log.

    Entries of ended transactions and of unknown versions are left out.
    """
    for key, value in entries:
        try:
            found = _read_entry(_Cursor(key), _Cursor(value))
        except (struct.error, IndexError, UnicodeDecodeError):
            continue
        if found is not None:
            yield found


def _read_entry(key: _Cursor, value: _Cursor) -> OpenTransaction | None:
    if key.number(">h") != 0:
        return None
    transactional_id = key.text(key.number(">h"))
    version = value.number(">h")
    if version not in (0, 1):
        return None
    value.is_compact = version == 1
    producer_id = value.number(">q")
    # The producer's epoch, and the transaction's timeout.
    value.number(">h")
    value.number(">i")
    status = value.number(">b")
    places: set[TopicPartition] = set()
    for _ in range(value.length(">i")):
        topic = value.text(value.length(">h"))
        places.update(
            TopicPartition(topic, value.number(">i")) for _ in range(value.length(">i"))
        )
        value.skip_tags()
    # The time of its last change, and the time of its start.
    value.number(">q")
    began_ms = value.number(">q")
    if status not in _OPEN:
        return None
    return OpenTransaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        began_at=datetime.fromtimestamp(began_ms / 1_000, UTC),
        places=frozenset(places),
    )


@dataclass(slots=True)
class _Cursor:
    """Reads the parts of Kafka's messages, in either of their encodings."""

    content: bytes
    at: int = 0
    is_compact: bool = False

    def number(self, form: str) -> int:
        (number,) = struct.unpack_from(form, self.content, self.at)
        self.at += struct.calcsize(form)
        return int(number)

    def length(self, form: str) -> int:
        """Read the number of items that follow; zero for null."""
        if not self.is_compact:
            return max(0, self.number(form))
        return max(0, self._varint() - 1)

    def text(self, length: int) -> str:
        self.at += length
        return self.content[self.at - length : self.at].decode()

    def skip_tags(self) -> None:
        """Skip the fields that newer brokers may add to a part."""
        if not self.is_compact:
            return
        for _ in range(self._varint()):
            self._varint()
            size = self._varint()
            self.at += size

    def _varint(self) -> int:
        number = shift = 0
        while True:
            byte = self.content[self.at]
            self.at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:  # noqa: PLR2004
                return number
            shift += 7
