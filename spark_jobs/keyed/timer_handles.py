"""The timers of one key in a function's hands, and what it changed of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sinks.postgres.key_text import check_entry

EVENT = "event"
PROCESSING = "processing"


@dataclass(frozen=True, slots=True, kw_only=True)
class FiredTimer:
    """A timer whose time has come. It is gone, unless it is set again."""

    name: str
    #: When it was set for.
    at: datetime
    #: ``event`` or ``processing``.
    clock: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerChange:
    """A timer that is set, or gone where ``fires_at`` is None."""

    name: str
    clock: str
    fires_at: datetime | None


class KeyTimers:
    """The timers of one key.

    Args:
        key: As it is stored.

    Attributes:
        fired: Those that are due in this batch, in the order of their times.
        now: The database's clock when the batch was planned; the same at every try.
    """

    def __init__(self, fired: Sequence[FiredTimer], *, key: str, now: datetime) -> None:
        self._key = key
        self.fired = tuple(fired)
        self.now = now
        self._changes = {
            timer.name: TimerChange(name=timer.name, clock=timer.clock, fires_at=None)
            for timer in self.fired
        }

    def set_event_time(self, name: str, at: datetime) -> None:
        """Fire once the watermark has come to a moment; set again, it moves.

        Raises:
            ValueError: The moment has no time zone, or the name a zero character.
            EntryTooLongError: The name is too long.
        """
        self._set(name, EVENT, at)

    def set_processing_time(self, name: str, at: datetime) -> None:
        """Fire once the database's clock has come to a moment; set again, it moves.

        Raises:
            ValueError: The moment has no time zone, or the name a zero character.
            EntryTooLongError: The name is too long.
        """
        self._set(name, PROCESSING, at)

    def cancel(self, name: str) -> None:
        """Forget a timer, if it is set."""
        self._changes[name] = TimerChange(name=name, clock=EVENT, fires_at=None)

    def changes(self) -> list[TimerChange]:
        """Return the net changes, each timer at most once."""
        return list(self._changes.values())

    def _set(self, name: str, clock: str, at: datetime) -> None:
        if at.tzinfo is None:
            raise ValueError(f"the timer {name} is set for a moment without time zone")
        if "\x00" in name:
            raise ValueError("a timer's name has a zero character")
        check_entry(self._key, name)
        self._changes[name] = TimerChange(name=name, clock=clock, fires_at=at)
