"""Handles that let a function read and change the timers of one key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import overload

from tallyweir.sinks.postgres.outputs.key_text import check_entry

EVENT = "event"
PROCESSING = "processing"


@dataclass(frozen=True, slots=True, kw_only=True)
class FiredTimer:
    """A timer whose time has come. It is deleted unless it is set again."""

    name: str
    #: The moment that it was set for.
    at: datetime
    #: ``event`` or ``processing``.
    clock: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerChange:
    """A timer that is set, or deleted if ``fires_at`` is None."""

    name: str
    clock: str
    fires_at: datetime | None


class FiredTimers(Sequence[FiredTimer]):
    """The timers of one key that are due in a call, in the order of their times.

    A timer that it has shown has fired. If a timer is set again or cancelled before it
    is shown, it leaves the sequence, unless it is due at its new moment as well.

    Args:
        due: Timers that are due when the call begins.
        through: Time up to which timers of each clock are due.
    """

    def __init__(
        self, due: Iterable[FiredTimer], through: Mapping[str, datetime | None]
    ) -> None:
        self._due = {timer.name: timer for timer in due}
        self._shown: set[str] = set()
        self._through = through

    def __iter__(self) -> Iterator[FiredTimer]:
        # While the caller handles one timer, it may remove another.
        for timer in self._in_order():
            if self._due.get(timer.name) is timer:
                self._shown.add(timer.name)
                yield timer

    def __len__(self) -> int:
        self._shown.update(self._due)
        return len(self._due)

    @overload
    def __getitem__(self, index: int) -> FiredTimer: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[FiredTimer]: ...
    def __getitem__(self, index: int | slice) -> FiredTimer | Sequence[FiredTimer]:
        self._shown.update(self._due)
        return self._in_order()[index]

    def replace(self, timer: FiredTimer) -> None:
        """Replace the due timer of the same name, if there is one."""
        if timer.name not in self._due:
            return
        through = self._through[timer.clock]
        is_due = through is not None and timer.at <= through
        if is_due and timer.name not in self._shown:
            self._due[timer.name] = timer
        else:
            self.drop(timer.name)

    def drop(self, name: str) -> None:
        """Remove a timer if it is due."""
        self._due.pop(name, None)

    def has_shown(self, name: str) -> bool:
        """Return whether a timer has fired, and was not set again since."""
        return name in self._due and name in self._shown

    def _in_order(self) -> list[FiredTimer]:
        return sorted(self._due.values(), key=lambda timer: (timer.at, timer.name))


class KeyTimers:
    """The timers of one key.

    Args:
        due: Timers that are due in this batch.
        key: The key as it is stored.
        now: The database's clock when the batch was planned.
        through: Time up to which timers of each clock are due in this batch; None for
            none.

    Attributes:
        fired: Due timers that this call has not set again or cancelled.
        now: The database's clock when the batch was planned; the same at every attempt.
    """

    def __init__(
        self,
        due: Sequence[FiredTimer],
        *,
        key: str,
        now: datetime,
        through: Mapping[str, datetime | None],
    ) -> None:
        self._key = key
        self.fired = FiredTimers(due, through)
        self.now = now
        self._changes = {timer.name: _gone(timer.name, timer.clock) for timer in due}

    def set_event_time(self, name: str, at: datetime) -> None:
        """Set a timer for when the watermark reaches a moment, or move it.

        Raises:
            ValueError: The moment has no time zone, or the name a zero character.
            EntryTooLongError: The name is too long.
        """
        self._set(name, EVENT, at)

    def set_processing_time(self, name: str, at: datetime) -> None:
        """Set a timer for when the database's clock reaches a moment, or move it.

        Raises:
            ValueError: The moment has no time zone, or the name a zero character.
            EntryTooLongError: The name is too long.
        """
        self._set(name, PROCESSING, at)

    def cancel(self, name: str) -> None:
        """Cancel a timer if it is set.

        Raises:
            ValueError: The name has a zero character.
            EntryTooLongError: The name is too long.
        """
        self._check_name(name)
        self.fired.drop(name)
        self._changes[name] = _gone(name, EVENT)

    def changes(self) -> list[TimerChange]:
        """Return the net changes, each timer at most once."""
        return [
            _gone(one.name, one.clock) if self.fired.has_shown(one.name) else one
            for one in self._changes.values()
        ]

    def _set(self, name: str, clock: str, at: datetime) -> None:
        if at.tzinfo is None:
            raise ValueError(f"the timer {name} is set for a moment without time zone")
        self._check_name(name)
        self.fired.replace(FiredTimer(name=name, at=at, clock=clock))
        self._changes[name] = TimerChange(name=name, clock=clock, fires_at=at)

    def _check_name(self, name: str) -> None:
        if "\x00" in name:
            raise ValueError("a timer's name has a zero character")
        check_entry(self._key, name)


def _gone(name: str, clock: str) -> TimerChange:
    return TimerChange(name=name, clock=clock, fires_at=None)
