"""Durations of a pipeline: checks them, and converts them for the protocol."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from tallyweir.schemas.pipeline.checks.problems import Path, Problem
from tallyweir.sinks.protocol.durations import EXAMPLES, format_duration


def in_microseconds(duration: timedelta) -> int:
    """Return a duration in whole microseconds, the unit of the protocol."""
    return duration // timedelta(microseconds=1)


def check_duration(
    duration: timedelta, at: Path, *, zero: bool = True
) -> Iterator[Problem]:
    """Check that a duration is whole milliseconds, and zero only if allowed."""
    if not isinstance(duration, timedelta):
        yield Problem(
            code="PIPELINE_DURATION",
            at=at,
            saw=f"{at[-1]} is {duration!r}, a {type(duration).__name__}.",
            why="In Python, a duration must be a timedelta.",
            fix="Write a timedelta, such as timedelta(minutes=30).",
        )
        return
    try:
        format_duration(duration)
    except ValueError as exc:
        seen = str(exc)
    else:
        if duration or zero:
            return
        seen = "it is zero"
    yield Problem(
        code="PIPELINE_DURATION",
        at=at,
        saw=f"{at[-1]} cannot be used: {seen}.",
        why=f"Durations are whole milliseconds{'' if zero else ', above zero'}.",
        fix=f"Write a duration such as {EXAMPLES}.",
    )
