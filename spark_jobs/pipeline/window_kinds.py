"""The kinds of windows that an output can have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from zoneinfo import available_timezones

from spark_jobs.pipeline.durations import check_duration
from spark_jobs.pipeline.problems import Problem, raise_if_any, suggest

UTC = "UTC"

_HOUR = timedelta(hours=1)

#: So that no single event makes rows without end.
WINDOWS_OF_AN_EVENT_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """Windows of one size, each beginning where the one before ends.

    Attributes:
        size: Length of the window.
        time_zone: Whose clock windows begin by: at multiples of the size since
            1970-01-01 00:00. Longer than an hour, they last from one time of that
            clock to the next, so a day has 23 or 25 hours when it is changed.
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
    """Windows that overlap: one begins ``every`` so often; an event is in several.

    Attributes:
        size: Length of the window.
        every: From the beginning of one to that of the next.
        time_zone: As in ``Fixed``; it is ``every`` that decides whether windows
            follow the clock.
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
                why="Events between two windows would be in none.",
                fix="Write a shorter every, or fixed windows.",
            )
        if self.size > WINDOWS_OF_AN_EVENT_MAX * self.every:
            yield Problem(
                code="PIPELINE_VALUE",
                at=("every",),
                saw="An event would be in more than "
                f"{WINDOWS_OF_AN_EVENT_MAX} windows.",
                why="Each of them is a row.",
                fix="Write a longer every, or a shorter size.",
            )
        if self.time_zone != UTC and self.every < _HOUR and _HOUR % self.every:
            yield Problem(
                code="PIPELINE_VALUE",
                at=("every",),
                saw="every does not divide an hour.",
                why="When the clock changes, windows would not meet the former ones.",
                fix="Write an every that divides an hour, or leave time_zone out.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Windows from the first event of a group until it pauses.

    Attributes:
        gap: How long the pause is; an event that comes exactly then begins another.
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
            why="It must be the name of a zone, as the IANA database has them.",
            fix=suggest(name, sorted(known)),
        )
