"""Durations as people write them: ``2 hours``, ``90 s``, ``500 ms``.

A duration is one whole number and one unit. Months and years are left out because they
have no fixed length; fractions, because ``1.5 hours`` is ``90 minutes``.
"""

from __future__ import annotations

import re
from datetime import timedelta

EXAMPLES = '"500 ms", "90 s", "30 minutes", "1 hour", "7 days"'
DURATION_MAX = timedelta(days=36_500)

_SHAPE = re.compile(r"(?P<count>[0-9]{1,15})\s*(?P<unit>[a-z]+)", re.ASCII)

# The largest comes first: the first unit that divides gives the shortest text.
_UNITS: tuple[tuple[timedelta, str, tuple[str, ...]], ...] = (
    (timedelta(weeks=1), "week", ("w",)),
    (timedelta(days=1), "day", ("d",)),
    (timedelta(hours=1), "hour", ("h",)),
    (timedelta(minutes=1), "minute", ("min", "m")),
    (timedelta(seconds=1), "second", ("sec", "s")),
    (timedelta(milliseconds=1), "millisecond", ("ms",)),
)
_LENGTHS = {
    spelling: length
    for length, word, short in _UNITS
    for spelling in (word, f"{word}s", *short)
}


def parse_duration(text: str) -> timedelta:
    """Read a duration; zero is allowed.

    Raises:
        ValueError: The text is not a whole number and a known unit, or is over 100
            years; the message says which.
    """
    match = _SHAPE.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError("it is not a whole number followed by a unit")
    length = _LENGTHS.get(match["unit"])
    if length is None:
        raise ValueError(f"{match['unit']!r} is not a unit of fixed length")
    count = int(match["count"])
    if count > DURATION_MAX // length:
        raise ValueError("it is longer than 100 years")
    return count * length


def format_duration(duration: timedelta) -> str:
    """Write a duration so that ``parse_duration`` gives the same one back.

    Raises:
        ValueError: The duration is negative, or finer than a millisecond.
    """
    if duration < timedelta() or duration % timedelta(milliseconds=1):
        raise ValueError(f"{duration!r} is not a whole number of milliseconds")
    if not duration:
        return "0 seconds"
    length, word = next(
        (length, word)
        for length, word, _ in _UNITS
        if word != "week" and not duration % length
    )
    count = duration // length
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
