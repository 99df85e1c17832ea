"""The events of a run and the producer transactions that carry them.

One of every ten events is sent again: soon, much later, or in another partition. Every
twenty events come with one bad record. Three of seven committed transactions follow one
that aborts, so about 30 % of all transactions abort. Aborted transactions hold events
that must never appear, and events that are sent again and committed.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from tallyweir.schemas.codec import encode
from tallyweir.schemas.contract import Contract
from tallyweir.schemas.formats.framing import HEADER_BYTES, frame
from tallyweir.schemas.formats.json.json_format import Json

PARTITIONS = 4
SITES = tuple(f"site-{number}" for number in range(8))
#: All event times of a run lie within this span, however many events it has.
SPAN_US = 24 * 3_600 * 1_000_000
#: 2025-01-01 00:00 UTC, in microseconds since 1970.
EPOCH_US = 1_735_689_600 * 1_000_000

EVENTS_PER_REPEAT = 10
EVENTS_PER_BAD = 20
_JITTER_US = 60 * 1_000_000
_TRANSACTION_RECORDS = (20, 160)
_ABORTED_BEFORE_COMMITTED = 3 / 7
_GHOSTS_MAX = 40
_RESENT_MAX = 40
#: An id that no schema of a run has.
_UNKNOWN_ID = 2**31 - 1


class RecordKind(StrEnum):
    """The kind of a record, which determines its fate."""

    EVENT = "event"
    REPEAT = "repeat"
    UNDECODABLE = "undecodable"
    RULE_BREAKER = "rule_breaker"
    #: An event that only aborted transactions hold.
    GHOST = "ghost"


GOOD = frozenset({RecordKind.EVENT, RecordKind.REPEAT})


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosEvent:
    """The fields of one event."""

    event_id: str
    site: str
    amount: int
    happened_at_us: int
    note: str

    @property
    def fingerprint(self) -> str:
        """The hash of all fields, as 32 hex digits."""
        text = f"{self.event_id}|{self.site}|{self.amount}|{self.happened_at_us}"
        return hashlib.blake2b(
            f"{text}|{self.note}".encode(), digest_size=16
        ).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record for Kafka.

    Attributes:
        kind: Its kind.
        event: Its event; for an undecodable record, the event before it was broken.
        partition: The partition that it goes to.
        payload: Its value.
    """

    kind: RecordKind
    event: ChaosEvent
    partition: int
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """One producer transaction.

    Attributes:
        commits: Whether it is to commit.
        records: Its records, in order.
        before: Number of records of committed transactions that come before it.
    """

    commits: bool
    records: tuple[Record, ...]
    before: int


def count_records(events: int) -> int:
    """Count the records that the workload commits."""
    return events + events // EVENTS_PER_REPEAT + events // EVENTS_PER_BAD


class Workload:
    """Everything that is sent in a run; the same for the same seed.

    Args:
        writer_at: The contract of the events that are sent after a share of them, from
            0 to 1.
        events: Number of different valid events.
        seed: Decides everything else.
    """

    def __init__(
        self, writer_at: Callable[[float], Contract], *, events: int, seed: int
    ) -> None:
        self._writer_at = writer_at
        self._contract = writer_at(0)
        self._events = events
        self._source = random.Random(f"{seed}/workload")  # noqa: S311 (repeatable)
        self._ghosts = itertools.count()

    def transactions(self) -> Iterator[Transaction]:
        """Make every transaction, in order."""
        records = self._committed_records()
        before = 0
        while True:
            size = self._source.randint(*_TRANSACTION_RECORDS)
            chunk = tuple(itertools.islice(records, size))
            if not chunk:
                return
            if self._source.random() < _ABORTED_BEFORE_COMMITTED:
                yield Transaction(
                    commits=False, records=self._aborted_records(chunk), before=before
                )
            yield Transaction(commits=True, records=chunk, before=before)
            before += len(chunk)

    def _committed_records(self) -> Iterator[Record]:
        """Make events, and put repeats and bad records between them."""
        due: list[tuple[int, int, Record]] = []
        tie = itertools.count()
        repeated = bad = 0
        for index in range(self._events):
            while due and due[0][0] <= index:
                yield heapq.heappop(due)[2]
            self._contract = self._writer_at(index / self._events)
            record = self._record(RecordKind.EVENT, self._event(f"e{index}", index))
            yield record
            # Chance decides which of ten events repeats, and where a bad record comes.
            if index % EVENTS_PER_REPEAT == 0:
                repeated = index + self._source.randrange(EVENTS_PER_REPEAT)
            if index % EVENTS_PER_BAD == 0:
                bad = index + self._source.randrange(EVENTS_PER_BAD)
            if index == repeated and self._is_whole(index, EVENTS_PER_REPEAT):
                at = index + self._repeat_after()
                heapq.heappush(due, (at, next(tie), self._repeat(record)))
            if index == bad and self._is_whole(index, EVENTS_PER_BAD):
                yield self._bad(index)
        while due:
            yield heapq.heappop(due)[2]

    def _is_whole(self, index: int, size: int) -> bool:
        """Tell whether the group of ``size`` that holds an event is complete."""
        return (index // size + 1) * size <= self._events

    def _event(
        self, event_id: str, index: int, amount: int | None = None
    ) -> ChaosEvent:
        step_us = SPAN_US // max(1, self._events)
        return ChaosEvent(
            event_id=event_id,
            site=self._source.choice(SITES),
            amount=self._source.randrange(10_000) if amount is None else amount,
            happened_at_us=EPOCH_US
            + index * step_us
            + self._source.randrange(_JITTER_US),
            note=self._source.randbytes(self._source.randint(4, 24)).hex(),
        )

    def _record(
        self, kind: RecordKind, event: ChaosEvent, partition: int | None = None
    ) -> Record:
        if partition is None:
            partition = self._source.randrange(PARTITIONS)
        return Record(
            kind=kind, event=event, partition=partition, payload=self._encode(event)
        )

    def _encode(self, event: ChaosEvent) -> bytes:
        values = {
            "event_id": event.event_id,
            "site": event.site,
            "amount": event.amount,
            "happened_at": event.happened_at_us,
            "note": event.note,
        }
        # A writer may have a field that the pipeline's columns do not have.
        names = [field.name for field in self._contract.fields]
        return encode(
            self._contract, {name: values.get(name, event.site) for name in names}
        )

    def _repeat_after(self) -> int:
        """Choose the number of events before a repeat: few or many."""
        if self._source.random() < 0.5:  # noqa: PLR2004 (one half)
            return self._source.randint(0, 5)
        return self._source.randint(100, max(101, self._events // 3))

    def _repeat(self, record: Record) -> Record:
        """Make a record of the same event, mostly for another partition.

        It has the same bytes, or is another spelling of the same JSON document.
        """
        return Record(
            kind=RecordKind.REPEAT,
            event=record.event,
            partition=self._source.randrange(PARTITIONS),
            payload=self._written_again(record.payload),
        )

    def _written_again(self, payload: bytes) -> bytes:
        if not isinstance(self._contract.format, Json):
            return payload
        members = list(json.loads(payload).items())
        self._source.shuffle(members)
        return json.dumps(dict(members), indent=1).encode()

    def _bad(self, index: int) -> Record:
        event = self._event(f"bad{index}", index)
        match self._source.randrange(4):
            case 0:
                broken = self._event(f"bad{index}", index, amount=-1 - event.amount)
                return self._record(RecordKind.RULE_BREAKER, broken)
            case 1:
                payload = b"\xff" + self._encode(event)[1:]
            case 2:
                payload = self._encode(event)[: HEADER_BYTES + 3]
            case _:
                payload = frame(_UNKNOWN_ID, self._source.randbytes(16))
        return Record(
            kind=RecordKind.UNDECODABLE,
            event=event,
            partition=self._source.randrange(PARTITIONS),
            payload=payload,
        )

    def _aborted_records(self, following: tuple[Record, ...]) -> tuple[Record, ...]:
        """Make the records of an aborted transaction: ghosts, and events sent again."""
        index = min(self._events, self._index_of(following))
        ghosts = [
            self._record(
                RecordKind.GHOST, self._event(f"ghost{next(self._ghosts)}", index)
            )
            for _ in range(self._source.randint(1, _GHOSTS_MAX))
        ]
        resent = self._source.sample(
            following, min(len(following), self._source.randint(0, _RESENT_MAX))
        )
        mixed = [*ghosts, *resent]
        self._source.shuffle(mixed)
        return tuple(mixed)

    def _index_of(self, records: tuple[Record, ...]) -> int:
        step_us = SPAN_US // max(1, self._events)
        return (records[0].event.happened_at_us - EPOCH_US) // max(1, step_us)
