"""The results that the flights must have, counted from the flights themselves.

This module uses no Kafka, Spark or Postgres, so that its count is independent.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tallyweir.schemas.codec import EventRecord

#: An hour of an airline at an airport: start of the hour, origin, airline's name.
WindowKey = tuple[dt.datetime, str, str]

UNKNOWN_AIRLINE = "unknown"
_DELAY_SUM_TOLERANCE = 1e-9


@dataclass(slots=True)
class HourOfFlights:
    """The flights of one window, added up.

    Attributes:
        flights: Number of flights.
        cancelled: Number of flights without a delay.
        delay_sum: Sum of the delays of the other flights, in minutes.
        worst_delay: Greatest delay in minutes; None if all flights were cancelled.
    """

    flights: int = 0
    cancelled: int = 0
    delay_sum: float = 0.0
    worst_delay: int | None = None

    def add(self, delay: int | None) -> None:
        """Count one more flight."""
        self.flights += 1
        if delay is None:
            self.cancelled += 1
            return
        self.delay_sum += delay
        self.worst_delay = (
            delay if self.worst_delay is None else max(delay, self.worst_delay)
        )

    def agrees_with(self, other: HourOfFlights) -> bool:
        """Tell whether both are the same, except for rounding of the sum."""
        return (
            self.flights == other.flights
            and self.cancelled == other.cancelled
            and self.worst_delay == other.worst_delay
            and math.isclose(
                self.delay_sum,
                other.delay_sum,
                rel_tol=_DELAY_SUM_TOLERANCE,
                abs_tol=_DELAY_SUM_TOLERANCE,
            )
        )

    def __str__(self) -> str:
        return (
            f"{self.flights} flights, {self.cancelled} cancelled, "
            f"{self.delay_sum:g} minutes of delay, worst {self.worst_delay}"
        )


class ExpectedResults:
    """Counts records as they are sent.

    Args:
        airlines: Names of airlines by carrier code.
    """

    def __init__(self, airlines: Mapping[str, str]) -> None:
        self.event_ids: set[str] = set()
        self.windows: dict[WindowKey, HourOfFlights] = {}
        self._airlines = airlines

    def count(self, records: Iterable[EventRecord]) -> Iterator[EventRecord]:
        """Count each record and pass it on."""
        for record in records:
            self._add(record)
            yield record

    def _add(self, record: EventRecord) -> None:
        moment, delay = record["scheduled_at"], record["dep_delay_minutes"]
        assert isinstance(moment, dt.datetime)
        assert delay is None or isinstance(delay, int)
        key = (
            moment.replace(minute=0, second=0, microsecond=0),
            str(record["origin"]),
            self._airlines.get(str(record["carrier"]), UNKNOWN_AIRLINE),
        )
        self.event_ids.add(str(record["event_id"]))
        self.windows.setdefault(key, HourOfFlights()).add(delay)


def compare_ids(expected: set[str], found: list[str]) -> list[str]:
    """Say which IDs are missing or surplus, and how many rows repeat an ID."""
    once = set(found)
    violations = [f"{event_id} is missing" for event_id in sorted(expected - once)]
    violations += [f"{event_id} was never sent" for event_id in sorted(once - expected)]
    if len(found) != len(once):
        violations.append(f"{len(found) - len(once)} rows repeat an ID")
    return violations


def compare_windows(
    expected: Mapping[WindowKey, HourOfFlights],
    found: Mapping[WindowKey, HourOfFlights],
) -> list[str]:
    """Say which windows are missing, surplus or differ."""
    nothing = HourOfFlights()
    violations = []
    for key in sorted(expected.keys() | found.keys()):
        ours, theirs = expected.get(key, nothing), found.get(key, nothing)
        if not ours.agrees_with(theirs):
            hour, origin, airline = key
            violations.append(
                f"{hour:%Y-%m-%d %H}h {origin} {airline}: {theirs}; sent were {ours}"
            )
    return violations
