"""A repeatable plan of faults between a producer and a topic.

Producers repeat events, sometimes at once and sometimes much later; a repeat can land
in another partition; bytes break; records break rules. ``FaultPlan`` adds all of these
faults to a stream of good records, in the same way for the same seed. It also counts
the result that an exactly-once pipeline must produce.
"""

from __future__ import annotations

import heapq
import random
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from tallyweir.schemas.codec import EventRecord, encode
from tallyweir.schemas.contract import Contract
from tallyweir.sinks.protocol.errors import ConfigurationError

NEAR_EVENTS = 10
FAR_EVENTS = 1_000
DISORDER_EVENTS = 50


class MessageKind(StrEnum):
    """The kind of a message, which decides what must become of it.

    A broken payload has the name of its damage instead (``Format.damages``).
    """

    EVENT = "event"
    REPEAT_NEAR = "repeat_near"
    REPEAT_FAR = "repeat_far"
    REPEAT_ELSEWHERE = "repeat_elsewhere"
    CONFLICT = "conflict"
    INVALID = "invalid"


REPEATS = (
    MessageKind.REPEAT_NEAR,
    MessageKind.REPEAT_FAR,
    MessageKind.REPEAT_ELSEWHERE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message for Kafka.

    Attributes:
        kind: A ``MessageKind``, or the name of the payload's damage.
        event_id: The producer's ID as text; for a broken payload, the ID of the event
            that it was made from.
        key: Decides the partition if ``partition`` is None.
        payload: An event in its contract's format, possibly broken.
        partition: Set only to send a repeat to another partition.
    """

    kind: str
    event_id: str
    key: bytes
    payload: bytes
    partition: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRates:
    """How much goes wrong, each as a share (0 to 1) of the good records.

    Attributes:
        duplicates: Records sent a second time with the same bytes: a third within
            ``NEAR_EVENTS``, a third ``FAR_EVENTS`` later, a third to another partition.
        poison: Additional messages that must become dead letters: bytes broken in each
            way of the format and, if ``invalid`` is given, records that break a rule.
        conflicts: Additional messages with an event's ID and another payload.
        disorder: Records sent up to ``DISORDER_EVENTS`` late.
        invalid: A field and the value that breaks the pipeline's rule for it.
    """

    duplicates: float = 0.0
    poison: float = 0.0
    conflicts: float = 0.0
    disorder: float = 0.0
    invalid: tuple[str, object] | None = None

    def __post_init__(self) -> None:
        """Refuse a rate that is not a share."""
        for name in ("duplicates", "poison", "conflicts", "disorder"):
            share = getattr(self, name)
            if not 0.0 <= share <= 1.0:
                raise ConfigurationError(
                    "SHARE_OUT_OF_RANGE",
                    saw=f"{name} is {share}.",
                    why="The value must be a share of the records.",
                    fix=f"Give {name} as a number from 0 to 1, such as 0.2.",
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """The result that an exactly-once pipeline must produce from the messages.

    It holds if the input's own records are valid and have distinct IDs.

    Attributes:
        sent: The number of messages.
        unique_valid: The number of rows that must result.
        duplicates: The number of repeats, by kind.
        conflicts: The number of messages with a known ID and another payload; they must
            become dead letters.
        poison: The number of broken and invalid messages, by kind; they must become
            dead letters.
    """

    sent: int
    unique_valid: int
    duplicates: dict[str, int]
    conflicts: int
    poison: dict[str, int]


class FaultPlan:
    """Turns good records into messages with faults; one plan per stream.

    Args:
        contract: The contract of the records.
        id_of: Returns the ID of a record as text.
        id_field: The field that holds the ID; None if a header carries it.
        key_of: Returns the key of a record; by default its ID.
        rates: How much goes wrong.
        seed: The same seed and records give the same messages.
        partitions: The topic's number of partitions; with one partition, no repeat goes
            to another.
    """

    def __init__(  # noqa: PLR0913 (keyword-only; each is a part of the plan)
        self,
        *,
        contract: Contract,
        id_of: Callable[[EventRecord], str],
        id_field: str | None = None,
        key_of: Callable[[EventRecord], bytes] | None = None,
        rates: FaultRates | None = None,
        seed: int = 7,
        partitions: int = 1,
    ) -> None:
        self._contract = contract
        self._id_of = id_of
        self._id_field = id_field
        self._key_of = key_of or (lambda record: id_of(record).encode())
        self._rates = rates or FaultRates()
        self._source = random.Random(seed)  # noqa: S311 (repeatable is the point)
        self._partitions = partitions
        self._counts: Counter[str] = Counter()
        self._waiting: list[tuple[int, int, Message]] = []
        self._scheduled = 0
        self._conflict = (
            _conflict_maker(contract, id_field) if self._rates.conflicts else None
        )
        self._poison_kinds: list[str] = [*contract.format.damages]
        if self._rates.invalid is not None:
            self._poison_kinds.append(MessageKind.INVALID)

    @property
    def expectation(self) -> Expectation:
        """The result that the messages yielded so far must produce."""
        counts = self._counts
        return Expectation(
            sent=counts.total(),
            unique_valid=counts[MessageKind.EVENT],
            duplicates={kind.value: counts[kind] for kind in REPEATS},
            conflicts=counts[MessageKind.CONFLICT],
            poison={
                str(kind): counts[kind]
                for kind in (*self._contract.format.damages, MessageKind.INVALID)
            },
        )

    def messages(self, records: Iterable[EventRecord]) -> Iterator[Message]:
        """Yield the messages of all records; delayed messages come last.

        Raises:
            EncodeError: A record does not fit the contract.
        """
        position = 0
        for position, record in enumerate(records):
            yield from self._due(position)
            self._schedule(position, record)
        yield from self._due(position + FAR_EVENTS + DISORDER_EVENTS + NEAR_EVENTS)

    def _due(self, position: int) -> Iterator[Message]:
        while self._waiting and self._waiting[0][0] <= position:
            message = heapq.heappop(self._waiting)[2]
            self._counts[message.kind] += 1
            yield message

    def _schedule(self, position: int, record: EventRecord) -> None:
        rates, source = self._rates, self._source
        event = Message(
            kind=MessageKind.EVENT,
            event_id=self._id_of(record),
            key=self._key_of(record),
            payload=encode(self._contract, record),
        )
        if source.random() < rates.disorder:
            position += source.randint(1, DISORDER_EVENTS)
        self._hold(position, event)
        if self._conflict is not None and source.random() < rates.conflicts:
            # It has the same key and partition and follows the event, which is first.
            altered = self._conflict(record)
            self._hold(
                position, _like(event, MessageKind.CONFLICT, self._encode(altered))
            )
        if source.random() < rates.duplicates:
            self._repeat(position, event)
        if source.random() < rates.poison:
            kind = source.choice(self._poison_kinds)
            self._hold(position, self._poison(kind, event, record))

    def _hold(self, due: int, message: Message) -> None:
        # The running number keeps messages with the same due position in order.
        self._scheduled += 1
        heapq.heappush(self._waiting, (due, self._scheduled, message))

    def _encode(self, record: EventRecord) -> bytes:
        return encode(self._contract, record)

    def _repeat(self, position: int, event: Message) -> None:
        kind = self._source.choice(REPEATS)
        if kind is MessageKind.REPEAT_ELSEWHERE and self._partitions == 1:
            kind = MessageKind.REPEAT_FAR
        partition = None
        lag = FAR_EVENTS
        if kind is MessageKind.REPEAT_NEAR:
            lag = self._source.randint(0, NEAR_EVENTS)
        elif kind is MessageKind.REPEAT_ELSEWHERE:
            lag = self._source.choice((0, NEAR_EVENTS, FAR_EVENTS))
            step = self._source.randint(1, self._partitions - 1)
            partition = (default_partition(event.key, self._partitions) + step) % (
                self._partitions
            )
        self._hold(position + lag, _like(event, kind, event.payload, partition))

    def _poison(self, kind: str, event: Message, record: EventRecord) -> Message:
        if kind == MessageKind.INVALID:
            return self._invalid(event, record)
        damage = self._contract.format.damages[kind]
        return _like(event, kind, damage(event.payload, self._contract, self._source))

    def _invalid(self, event: Message, record: EventRecord) -> Message:
        assert self._rates.invalid is not None
        field, value = self._rates.invalid
        broken = {**record, field: value}
        event_id = event.event_id
        if self._id_field is not None:
            # It needs its own ID: a second record with a known ID would be a repeat.
            event_id = f"{event_id}-invalid"
            broken[self._id_field] = event_id
        return Message(
            kind=MessageKind.INVALID,
            event_id=event_id,
            key=event.key,
            payload=self._encode(broken),
        )


def default_partition(key: bytes, partitions: int) -> int:
    """The partition that librdkafka's default partitioner gives a key."""
    return zlib.crc32(key) % partitions


def _like(
    event: Message, kind: str, payload: bytes, partition: int | None = None
) -> Message:
    return Message(
        kind=kind,
        event_id=event.event_id,
        key=event.key,
        payload=payload,
        partition=partition,
    )


def _conflict_maker(
    contract: Contract, id_field: str | None
) -> Callable[[EventRecord], EventRecord]:
    """Find a field that can change without making the record invalid."""
    steps: dict[str, Callable[..., object]] = {
        "string": lambda text: f"{text} (altered)",
        "long": lambda number: number - 1 if number > 0 else number + 1,
        "int": lambda number: number - 1 if number > 1 else number + 1,
        "double": lambda number: number + 1.0,
    }
    for kind, step in steps.items():
        for field in contract.fields:
            if field.type == kind and not field.nullable and field.name != id_field:
                name = field.name
                return lambda record: {**record, name: step(record[name])}
    raise ConfigurationError(
        "CONFLICT_IMPOSSIBLE",
        saw=f"{contract.reference} has no required text or number field "
        "other than the ID.",
        why="A conflict is another payload with the same ID.",
        fix="Leave conflicts out.",
    )
