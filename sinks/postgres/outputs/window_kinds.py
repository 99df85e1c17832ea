"""The kinds of windows, as a task must know them to find those of an event.

Durations are microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass

#: The zone in which boundaries are plain multiples.
UTC_ZONE = "UTC"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignedWindows:
    """Windows that the clock alone decides: fixed ones, and sliding ones.

    They begin at multiples of ``every_us`` since 1970-01-01 00:00 in the time zone.
    Fixed windows begin where the one before ends.
    """

    size_us: int
    every_us: int
    time_zone: str = UTC_ZONE


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionWindows:
    """Windows that the events of a group decide.

    A session ends ``gap_us`` after its last event; an event that comes exactly then
    begins another.
    """

    gap_us: int


WindowKind = AlignedWindows | SessionWindows


def fixed_windows(size_us: int) -> AlignedWindows:
    """Return windows of one size, each beginning where the one before ends."""
    return AlignedWindows(size_us=size_us, every_us=size_us)
