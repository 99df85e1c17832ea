"""The kinds of windows that an output can have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar
from zoneinfo import available_timezones

from tallyweir.schemas.pipeline.checks.durations import check_duration
from tallyweir.schemas.pipeline.checks.problems import Problem, raise_if_any, suggest
from tallyweir.schemas.pipeline.document.file_keys import Duration, Keys

UTC = "UTC"

_HOUR = timedelta(hours=1)

#: Most windows of an event, so that one event cannot make unlimited rows.
WINDOWS_OF_AN_EVENT_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """Windows of one size, each of which begins where the one before ends.

    Attributes:
        size: Length of the window.
        time_zone: Windows begin by the clock of this zone, at multiples of the size
            since 1970-01-01 00:00. Windows longer than an hour follow that clock, so a
            day has 23 or 25 hours when the clock changes.
    """

    size: timedelta
    time_zone: str = UTC

    def __post_init__(self) -> None:
        raise_if_any("Fixed", self._find_problems())

    def _find_problems(self) -> Iterator[Problem]:
        yield from check_duration(self.size, ("size",), zero=False)
        yield from _check_time_zone(self.time_zone)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sliding:
    """Overlapping windows: one begins at each ``every``; an event is in several.

    Attributes:
        size: Length of the window.
        every: Time from the start of one window to the start of the next.
        time_zone: As in ``Fixed``, but ``every`` decides whether windows follow the
            clock.
    """

    size: timedelta
    every: timedelta
    time_zone: str = UTC

    def __post_init__(self) -> None:
        raise_if_any("Sliding", self._find_problems())

    def _find_problems(self) -> Iterator[Problem]:
        yield from check_duration(self.size, ("size",), zero=False)
        yield from check_duration(self.every, ("every",), zero=False)
        yield from _check_time_zone(self.time_zone)
        if not self.every:
            return
        if self.every > self.size:
            yield Problem(
                code="PIPELINE_VALUE",
                at=("every",),
                saw="every is longer than size.",
                why="Events between two windows would not belong to any window.",
                fix="Write a shorter every, or fixed windows.",
            )
        if self.size > WINDOWS_OF_AN_EVENT_MAX * self.every:
            yield Problem(
                code="PIPELINE_VALUE",
                at=("every",),
                saw="An event would be in more than "
                f"{WINDOWS_OF_AN_EVENT_MAX} windows.",
                why="Each window is a row.",
                fix="Write a longer every, or a shorter size.",
            )
        if self.time_zone != UTC and self.every < _HOUR and _HOUR % self.every:
            yield Problem(
                code="PIPELINE_VALUE",
                at=("every",),
                saw="every does not divide an hour.",
                why="After a clock change, windows would no longer align with the "
                "earlier ones.",
                fix="Choose a value that divides an hour, or leave time_zone out.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Windows from the first event of a group until a gap without events.

    Attributes:
        gap: Time without events that ends a window; an event exactly one gap later
            begins another.
    """

    gap: timedelta

    def __post_init__(self) -> None:
        raise_if_any("Session", check_duration(self.gap, ("gap",), zero=False))


WindowKind = Fixed | Sliding | Session


def _check_time_zone(name: str) -> Iterator[Problem]:
    known = available_timezones()
    if name not in known:
        yield Problem(
            code="PIPELINE_VALUE",
            at=("time_zone",),
            saw=f"time_zone is {name!r}.",
            why="It must be the name of a zone in the IANA time zone database.",
            fix=suggest(name, sorted(known)),
        )


class SlidingKeys(Keys[Sliding]):
    """The keys of ``sliding``."""

    part = Sliding
    stand_ins: ClassVar[Mapping[str, object]] = {"size": _HOUR, "every": _HOUR}

    size: Duration
    every: Duration


class SessionKeys(Keys[Session]):
    """The keys of ``session``."""

    part = Session
    stand_ins: ClassVar[Mapping[str, object]] = {"gap": _HOUR}

    gap: Duration
