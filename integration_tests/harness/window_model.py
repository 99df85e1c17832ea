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
    #: How long events wait to be shown in a window that is open; None for ever.
    early_every: int | None = 0
    discarding: bool = False


@dataclass(slots=True, kw_only=True)
class Window:
    """A window of a group, with all of its events.

    Attributes:
        shown: Those that its row shows; none if it has no row.
        waiting_since: When the batch of the oldest event came that no row shows.
    """

    start: int
    end: int
    key: str | None
    events: list[Event]
    shown: list[Event] = field(default_factory=list)
    pane: str = "early"
    waiting_since: int | None = None


Row = tuple[object, ...]


@dataclass(slots=True, kw_only=True)
class WindowModel:
    """One window output; ``take`` is a batch.

    Attributes:
        rules: Its windows.
        watermark: After the last batch.
        batches: How many there were.
        windows: Those that are open, and those that are closed.
        late_of_batch: Events of the last batch of which a window was closed.
        revisions: Settled rows that changed or were swallowed.
        discarded: Of discarding windows, the rows but for ``final``: each with its
            window's end, its pane and its batch.
    """

    rules: Rules
    watermark: int | None = None
    batches: int = 0
    windows: list[Window] = field(default_factory=list)
    late_of_batch: list[Event] = field(default_factory=list)
    revisions: list[Row] = field(default_factory=list)
    discarded: list[tuple[Row, int, str, int]] = field(default_factory=list)

    def take(
        self, events: Iterable[Event], watermark: int | None, planned_at: int
    ) -> None:
        """Take a batch, after which the watermark is this."""
        before = self.watermark
        self.batches += 1
        self.late_of_batch = []
        # Kept with their rows, so that no new window gets the number of an old one.
        settled = {id(one): (one, self._row(one)) for one in self.windows if one.shown}
        touched: set[int] = set()
        for event in events:
            touched |= self._take_event(event, before, planned_at)
        for number in touched:
            is_settled = number in settled and settled[number][0].pane != "early"
            if is_settled and not self.rules.discarding:
                self.revisions.append(settled[number][1])
        self.watermark = watermark
        for one in self.windows:
            has_passed = watermark is not None and one.end <= watermark
            if one.waiting_since is not None and self._is_due(one, planned_at):
                had_passed = before is not None and one.end <= before
                one.pane = "late" if had_passed else "early"
                if has_passed and not had_passed:
                    one.pane = "on_time"
                self._show(one)
            if one.pane == "early" and has_passed:
                one.pane = "on_time"

    def _take_event(
        self, event: Event, before: int | None, planned_at: int
    ) -> set[int]:
        fresh = self._windows_of(event, planned_at)
        still_open = [one for one in fresh if not self._is_closed(one.end, before)]
        if len(still_open) < len(fresh):
            self.late_of_batch.append(event)
        return {number for one in still_open for number in self._add(one, before)}

    def rows(self) -> list[Row]:
        """Return the result table."""
        if self.rules.discarding:
            found = [
                (*row, pane, self._is_closed(end, self.watermark), batch)
                for row, end, pane, batch in self.discarded
            ]
        else:
            found = [self._row(one) for one in self.windows if one.shown]
        return sorted(found, key=repr)

    def open_windows(self) -> int:
        """Return how many windows have state."""
        return sum(
            not self._is_closed(one.end, self.watermark)
            and not (self.rules.discarding and one.waiting_since is None)
            for one in self.windows
        )

    def _windows_of(self, event: Event, planned_at: int) -> list[Window]:
        if self.rules.gap is not None:
            spans = [(event.at, event.at + self.rules.gap)]
        else:
            spans = [
                (start, start + self.rules.size)
                for start in range(event.at - self.rules.size + 1, event.at + 1)
                if start % self.rules.every == 0
            ]
        return [
            Window(
                start=start,
                end=end,
                key=event.key,
                events=[event],
                waiting_since=planned_at,
            )
            for start, end in spans
        ]

    def _add(self, fresh: Window, before: int | None) -> set[int]:
        """Join it with every open window that it belongs to; tell with which."""
        is_session = self.rules.gap is not None
        joined = [
            one
            for one in self.windows
            if one.key == fresh.key
            and not self._is_closed(one.end, before)
            and (
                (one.start < fresh.end and fresh.start < one.end)
                if is_session
                else one.start == fresh.start
            )
        ]
        for one in joined:
            self.windows.remove(one)
            fresh.events += one.events
            fresh.start = min(one.start, fresh.start)
            fresh.end = max(one.end, fresh.end)
            if one.waiting_since is not None:
                fresh.waiting_since = min(one.waiting_since, fresh.waiting_since or 0)
            if not is_session:
                # Sessions lose their rows to the one that they join.
                fresh.shown, fresh.pane = one.shown, one.pane
        self.windows.append(fresh)
        return {id(one) for one in joined}

    def _is_due(self, one: Window, planned_at: int) -> bool:
        if self.watermark is not None and one.end <= self.watermark:
            return True
        early = self.rules.early_every
        return early is not None and (one.waiting_since or 0) + early <= planned_at

    def _show(self, one: Window) -> None:
        if self.rules.discarding:
            fresh = [event for event in one.events if event not in one.shown]
            self.discarded.append(
                (self._values(one, fresh), one.end, one.pane, self.batches)
            )
        one.shown = list(one.events)
        one.waiting_since = None

    def _is_closed(self, end: int, watermark: int | None) -> bool:
        return watermark is not None and end + self.rules.lateness <= watermark

    def _row(self, one: Window) -> Row:
        is_final = self._is_closed(one.end, self.watermark)
        return (*self._values(one, one.shown), one.pane, is_final)

    def _values(self, one: Window, events: list[Event]) -> Row:
        return (
            one.start,
            one.end,
            one.key,
            *_aggregates(events),
            *(_sketched(events) if self.rules.sketched else ()),
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
