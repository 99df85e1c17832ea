"""Which fields could be the time of events, and how far out of order they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from tallyweir.services.look.disorder import DisorderMeter

KAFKA_TIMESTAMP = "kafka_timestamp"
_NOTED_MAX = 16
#: By more disorder than this, a time is hardly that of the event.
_DISORDER_MAX = timedelta(days=7)
FEW = 0.001
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


@dataclass(slots=True)
class TimeCandidates:
    """Notes the values of possible event times.

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

    def add(
        self, partition: int, values: Sequence[tuple[str, int | None, str]]
    ) -> None:
        """Note one record.

        Args:
            partition: Of the record.
            values: Name, microseconds and unit of each possible time; None for a value
                that is no time, which ends what its field could be.
        """
        self.events += 1
        for name, micros, unit in values:
            if name in self.failed:
                continue
            if micros is None:
                if self.meters.pop(name, None) is not None:
                    self.failed.add(name)
                continue
            meter, known = self.meters.get(name, (None, unit))
            if meter is None:
                if len(self.meters) >= _NOTED_MAX:
                    continue
                meter = DisorderMeter(now=self.now)
                self.meters[name] = meter, unit
            if known != unit:
                del self.meters[name]
                self.failed.add(name)
                continue
            meter.add(partition, micros)

    def measure(self) -> list[TimeCandidate]:
        """Return all possible event times, in the order of the documents."""
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
