"""What windows must hold, computed the simple way: by keeping every event.

Independent of the code under test: it knows neither partials nor SQL, and finds
sessions by comparing each with each. Times are whole seconds.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event."""

    at: int
    key: str | None
    value: int | None
    #: Where it is in the topic.
    position: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How an output makes windows; a gap makes them sessions."""

    size: int = 10
    every: int = 10
    gap: int | None = None
    lateness: int = 0
    #: Whether it has the aggregates that are approximate, too.
    sketched: bool = False


@dataclass(slots=True, kw_only=True)
class Window:
    """A window of a group, with all of its events."""

    start: int
    end: int
    key: str | None
    events: list[Event]
    pane: str = "early"
    #: Whether a batch has changed it since its pane was decided.
    changed: bool = True


Row = tuple[object, ...]


@dataclass(slots=True, kw_only=True)
class WindowModel:
    """One window output; ``take`` is a batch.

    Attributes:
        rules: Its windows.
        watermark: After the last batch.
        windows: Those that are open, and those that are closed.
        late: Events of which a window was closed.
        revisions: Settled rows that changed or were swallowed.
    """

    rules: Rules
    watermark: int | None = None
    windows: list[Window] = field(default_factory=list)
    late: list[Event] = field(default_factory=list)
    revisions: list[Row] = field(default_factory=list)

    def take(self, events: Iterable[Event], watermark: int | None) -> None:
        """Take a batch, after which the watermark is this."""
        before = self.watermark
        # Kept with their rows, so that no new window gets the number of an old one.
        settled = {id(one): (one, self._row(one)) for one in self.windows}
        touched: set[int] = set()
        for event in events:
            fresh = [
                one
                for one in self._windows_of(event)
                if not self._is_closed(one.end, before)
            ]
            if len(fresh) < len(self._windows_of(event)):
                self.late.append(event)
            for one in fresh:
                touched |= self._add(one, before)
        for number in touched:
            if number in settled and settled[number][0].pane != "early":
                self.revisions.append(settled[number][1])
        self.watermark = watermark
        for one in self.windows:
            if one.changed:
                one.pane = "early"
                if before is not None and one.end <= before:
                    one.pane = "late"
            if one.pane == "early" and watermark is not None and one.end <= watermark:
                one.pane = "on_time"
            one.changed = False

    def rows(self) -> list[Row]:
        """Return the result table."""
        return sorted(map(self._row, self.windows), key=repr)

    def open_windows(self) -> int:
        """Return how many windows have state."""
        return sum(not self._is_closed(one.end, self.watermark) for one in self.windows)

    def _windows_of(self, event: Event) -> list[Window]:
        if self.rules.gap is not None:
            spans = [(event.at, event.at + self.rules.gap)]
        else:
            spans = [
                (start, start + self.rules.size)
                for start in range(event.at - self.rules.size + 1, event.at + 1)
                if start % self.rules.every == 0
            ]
        return [
            Window(start=start, end=end, key=event.key, events=[event])
            for start, end in spans
        ]

    def _add(self, fresh: Window, before: int | None) -> set[int]:
        """Join it with every open window that it belongs to; tell with which."""
        joined = [
            one
            for one in self.windows
            if one.key == fresh.key
            and not self._is_closed(one.end, before)
            and (
                (one.start < fresh.end and fresh.start < one.end)
                if self.rules.gap is not None
                else one.start == fresh.start
            )
        ]
        for one in joined:
            self.windows.remove(one)
            fresh.events += one.events
            fresh.start, fresh.end = (
                min(one.start, fresh.start),
                max(one.end, fresh.end),
            )
        self.windows.append(fresh)
        return {id(one) for one in joined}

    def _is_closed(self, end: int, watermark: int | None) -> bool:
        return watermark is not None and end + self.rules.lateness <= watermark

    def _row(self, one: Window) -> Row:
        return (
            one.start,
            one.end,
            one.key,
            *_aggregates(one.events),
            *(_sketched(one.events) if self.rules.sketched else ()),
            one.pane,
            self._is_closed(one.end, self.watermark),
        )


def _aggregates(events: list[Event]) -> tuple[object, ...]:
    """Count, sum, least, greatest, first, last and deviation, as SQL has them."""
    ordered = sorted(events, key=lambda event: (event.at, event.position))
    values = [event.value for event in ordered if event.value is not None]
    if not values:
        return (len(events), *[None] * 6)
    return (
        len(events),
        sum(values),
        min(values),
        max(values),
        values[0],
        values[-1],
        round(statistics.stdev(values), 9) if len(values) > 1 else None,
    )


def _sketched(events: list[Event]) -> tuple[object, ...]:
    """Different values, and the least that half of the values do not exceed."""
    values = sorted(event.value for event in events if event.value is not None)
    return len(set(values)), values[(len(values) - 1) // 2] if values else None
