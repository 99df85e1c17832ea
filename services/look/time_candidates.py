"""Which fields could be the time of events, and how far out of order they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import numpy as np

from tallyweir.services.look.disorder import DisorderMeter
from tallyweir.sinks.seen_ids.ordering import I64Array

KAFKA_TIMESTAMP = "kafka_timestamp"
_NOTED_MAX = 16
#: By more disorder than this, a time is hardly that of the event.
_DISORDER_MAX = timedelta(days=7)
FEW = 0.001
#: The least whole number that is taken for a moment of each unit.
UNITS = {"s": 10**9, "ms": 10**12, "us": 10**15, "ns": 10**18}
UNIT_WIDTH = 10
_BEST_NAMES = ("event_time", "occurred_at", "timestamp", "time", "ts", "at")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeCandidate:
    """A possible event time.

    Attributes:
        name: As ``event_time`` has it.
        lacking: Records without it.
        for_all: The delay by which no event is late.
        for_most: The delay by which one event in a thousand is late.
        future: Events more than a day ahead of the clock.
        unit: The unit, if the field is a number that may be a time.
    """

    name: str
    lacking: int
    for_all: timedelta
    for_most: timedelta
    future: int
    events: int
    unit: str = ""


NotedTimes = tuple[I64Array, I64Array, I64Array]
"""Of some records, the rows in a batch, the partitions, and the microseconds."""


@dataclass(slots=True)
class TimeCandidates:
    """Notes the values of possible event times.

    Values are noted by the row that their record has in a batch, in any order.
    ``flush`` ends the batch.

    Attributes:
        now: The clock, in microseconds.
        meters: The disorder of each possible event time, and its unit.
        failed: Fields that also have other values.
        events: Records that were noted.
    """

    now: int
    meters: dict[str, tuple[DisorderMeter, str]] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    events: int = 0
    _values: dict[str, list[tuple[int, int, int]]] = field(default_factory=dict)
    _columns: dict[str, list[NotedTimes]] = field(default_factory=dict)

    def add(
        self, row: int, partition: int, values: Sequence[tuple[str, int | None, str]]
    ) -> None:
        """Note one record.

        Args:
            row: Of the record.
            partition: Of the record.
            values: Name, microseconds and unit of each possible time; None for a value
                that is no time, which ends what its field could be.
        """
        self.events += 1
        for name, micros, unit in values:
            if name in self.failed:
                continue
            if micros is None:
                self.fail(name)
                continue
            if name not in self.meters:
                if len(self.meters) >= _NOTED_MAX:
                    continue
                self.meters[name] = DisorderMeter(now=self.now), unit
            if self.meters[name][1] != unit:
                self.fail(name)
                continue
            self._values.setdefault(name, []).append((row, partition, micros))

    def add_columns(self, events: int, columns: Mapping[str, NotedTimes]) -> None:
        """Note the values of fields that have a meter, for so many records."""
        self.events += events
        for name, times in columns.items():
            self._columns.setdefault(name, []).append(times)

    def fail(self, name: str) -> None:
        """Note that a field has values that are no times."""
        if self.meters.pop(name, None) is not None:
            self.failed.add(name)

    def flush(self) -> None:
        """Measure the values of a batch, in the order of its rows."""
        for name, (meter, _) in self.meters.items():
            parts = self._columns.get(name, [])
            if name in self._values:
                alone = np.array(self._values[name], np.int64)
                parts = [*parts, (alone[:, 0], alone[:, 1], alone[:, 2])]
            if not parts:
                continue
            rows, partitions, micros = map(np.concatenate, zip(*parts, strict=True))
            order = np.argsort(rows)
            meter.add(partitions[order], micros[order])
        self._values.clear()
        self._columns.clear()

    def measure(self) -> list[TimeCandidate]:
        """Return all possible event times, in the order of the documents."""
        self.flush()
        return [
            TimeCandidate(
                name=name,
                lacking=self.events - meter.events - meter.future,
                for_all=meter.delay_for_all,
                for_most=meter.delay_losing(FEW),
                future=meter.future,
                events=meter.events,
                unit=unit,
            )
            for name, (meter, unit) in self.meters.items()
        ]


def choose_time(
    candidates: Sequence[TimeCandidate], usable: frozenset[str]
) -> TimeCandidate | None:
    """Choose the event time; None if it must be Kafka's timestamp.

    Args:
        candidates: All possible event times.
        usable: The names of those that a pipeline could use.
    """
    fitting = [
        one
        for one in candidates
        if one.name in usable
        and not one.unit
        and not one.lacking
        and one.future <= one.events * FEW
        and one.for_most <= _DISORDER_MAX
    ]
    return min(fitting, key=_rank, default=None)


def _rank(one: TimeCandidate) -> tuple[int, int, timedelta]:
    last = one.name.rpartition(".")[2].lower()
    best = _BEST_NAMES.index(last) if last in _BEST_NAMES else len(_BEST_NAMES)
    return best, one.name.count("."), one.for_most
