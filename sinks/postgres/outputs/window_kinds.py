"""The kinds of windows, with all that a task must know to find an event's windows.

Durations are microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass

#: The zone in which boundaries are plain multiples.
UTC_ZONE = "UTC"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignedWindows:
    """Windows that depend on the clock alone: fixed windows and sliding windows.

    They begin at multiples of ``every_us`` since 1970-01-01 00:00 in the time zone.
    Each fixed window begins where the one before ends.
    """

    size_us: int
    every_us: int
    time_zone: str = UTC_ZONE


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionWindows:
    """Windows that depend on the events of a group.

    A session ends ``gap_us`` after its last event. An event that comes exactly then
    begins another session.
    """

    gap_us: int


WindowKind = AlignedWindows | SessionWindows


def fixed_windows(size_us: int) -> AlignedWindows:
    """Return windows of one size, each beginning where the one before ends."""
    return AlignedWindows(size_us=size_us, every_us=size_us)
