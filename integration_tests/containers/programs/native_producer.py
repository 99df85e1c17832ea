"""Sends flights to Kafka until SIGTERM, then prints as JSON what it knows of them.

Called with the prefix of its IDs, and ``idempotent`` or ``transactional``. Both send
some events twice and some that are broken, and go back and forth between the versions
of the contract. Of the transactions about a third are aborted.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

from confluent_kafka import KafkaException, Message, Producer

from tallyweir.schemas.codec import encode
from tallyweir.schemas.contract import load_contract
from tallyweir.sinks.kafka_settings import KAFKA_CONFIG_VARIABLE, client_config

_TOPIC = "flight-departures"
_PARTITIONS = 4
_BURST = 20
_BURST_EVERY_S = 0.3
_EVENTS_PER_VERSION = 70
_KEPT = 400
#: Shares of the bursts.
_BROKEN = 0.2
_ABORTED = 0.4
#: Longer than any fault, or the broker would abort the transaction of a producer that
#: waits for it, and let the producer in no more.
_PATIENCE_S = 300
_PATIENCE_MS = _PATIENCE_S * 1_000
_CONTRACTS = Path("/etc/tallyweir/pipelines")
_USER = {KAFKA_CONFIG_VARIABLE: "/run/secrets/kafka_producer.properties"}


@dataclass(frozen=True)
class Record:
    """What goes into Kafka; broken ones have no ID."""

    event_id: str
    payload: bytes


@dataclass(frozen=True)
class Told:
    """What became of records: ID, partition and offset of each."""

    outcome: str
    records: list[tuple[str, int, int]]


class Flights:
    """Makes records, some of them for the second time."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._number = 0
        self._source = random.Random(prefix)
        self._kept: deque[Record] = deque(maxlen=_KEPT)
        self._versions = [
            load_contract(f"flight_departure.v{version}.avsc", _CONTRACTS)
            for version in (1, 2)
        ]

    def some(self) -> list[Record]:
        """Make a burst: new ones, a repeat or two, and now and then a broken one."""
        records = [self._new() for _ in range(_BURST)]
        records += self._source.sample(self._kept, min(2, len(self._kept)))
        if self.luck() < _BROKEN:
            records.append(Record("", b"\x00 this is no flight"))
        if self.luck() < _BROKEN:
            records.append(Record("", self._encode("broken", distance=0)))
        self._kept.extend(records[:_BURST])
        return records

    def ghosts(self) -> list[Record]:
        """Make events that nobody may ever count."""
        ids = [f"{self.prefix}:ghost:{self._number}:{part}" for part in range(5)]
        return [Record(event_id, self._encode(event_id)) for event_id in ids]

    def partition(self) -> int:
        """Choose where a record goes."""
        return self._source.randrange(_PARTITIONS)

    def luck(self) -> float:
        """From 0 to 1."""
        return self._source.random()

    def _new(self) -> Record:
        self._number += 1
        event_id = f"{self.prefix}:{self._number}"
        return Record(event_id, self._encode(event_id))

    def _encode(self, event_id: str, distance: int = 1400) -> bytes:
        number = self._number
        version = number // _EVENTS_PER_VERSION % len(self._versions)
        record = {
            "event_id": event_id,
            # All of them within one hour, so that none can come too late.
            "scheduled_at": 1_357_984_800_000_000 + number % 3_600 * 1_000_000,
            "carrier": ("UA", "AA", "??")[number % 3],
            "flight": number,
            "tailnum": None,
            "origin": "EWR",
            "destination": "IAH",
            "distance_miles": distance,
            "dep_delay_minutes": number % 40 if number % 7 else None,
            "arr_delay_minutes": None,
            "air_time_minutes": None,
        }
        if version == 1:
            record["gate"] = f"C{number % 90}"
        return encode(self._versions[version], record)


class Sender:
    """Hands records to a producer and remembers what the broker reported."""

    def __init__(self, flights: Flights, config: Mapping[str, object]) -> None:
        self._flights = flights
        self.producer = Producer({**client_config("kafka:9092", _USER), **config})
        self.reported: list[tuple[str, int, int]] = []
        self.failed: list[Record] = []

    def send(self, records: Sequence[Record]) -> None:
        """Hand records over, each to some partition."""
        for record in records:
            self.producer.produce(
                _TOPIC,
                record.payload,
                partition=self._flights.partition(),
                on_delivery=partial(self._note, record),
            )

    def flush(self) -> None:
        """Wait until each record is reported."""
        left = self.producer.flush(_PATIENCE_S)
        assert left == 0, f"{left} records were not reported"

    def _note(self, record: Record, error: object, message: Message) -> None:
        if error is not None:
            self.failed.append(record)
            return
        place = cast("tuple[int, int]", (message.partition(), message.offset()))
        self.reported.append((record.event_id, *place))


def send_idempotently(flights: Flights) -> Iterator[Told]:
    """Send; what failed is sent again, although it may be there."""
    config = {"enable.idempotence": True, "delivery.timeout.ms": _PATIENCE_MS}
    sender = Sender(flights, config)
    while not stopping.wait(_BURST_EVERY_S):
        again, sender.failed = sender.failed, []
        sender.send([*again, *flights.some()])
        sender.producer.poll(0)
    sender.flush()
    yield Told("acknowledged", sender.reported)


def send_in_transactions(flights: Flights) -> Iterator[Told]:
    """Send each burst in a transaction, again and again until one commits."""
    identity = f"producer-{flights.prefix}"
    config = {"transactional.id": identity, "transaction.timeout.ms": _PATIENCE_MS}
    sender = Sender(flights, config)
    sender.producer.init_transactions(_PATIENCE_S)
    while not stopping.wait(_BURST_EVERY_S):
        burst = flights.some()
        if flights.luck() < _ABORTED:
            yield _run_transaction(
                sender,
                [*burst[: _BURST // 2], *flights.ghosts()],
                sender.producer.abort_transaction,
            )
        told = Told("aborted", [])
        while told.outcome == "aborted":
            told = _run_transaction(sender, burst, sender.producer.commit_transaction)
            yield told


def _run_transaction(
    sender: Sender, records: Sequence[Record], end: Callable[[], None]
) -> Told:
    sender.reported = []
    sender.producer.begin_transaction()
    aborts = end == sender.producer.abort_transaction
    try:
        sender.send(records)
        sender.flush()
        _until_answered(end)
    except KafkaException as error:
        if not error.args[0].txn_requires_abort():
            raise
        _until_answered(sender.producer.abort_transaction)
        aborts = True
    return Told("aborted" if aborts else "acknowledged", sender.reported)


def _until_answered(end: Callable[[], None]) -> None:
    """Ask as long as the broker is away: the same question, so one outcome."""
    while True:
        try:
            return end()
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


stopping = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stopping.set())
prefix, kind = sys.argv[1:]
send = {"idempotent": send_idempotently, "transactional": send_in_transactions}[kind]
everything: dict[str, list[tuple[str, int, int]]] = {"acknowledged": [], "aborted": []}
for told in send(Flights(prefix)):
    everything[told.outcome] += told.records
print(json.dumps(everything))
