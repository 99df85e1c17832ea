"""Durations: one way to read each spelling, and a way back."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallyweir.sinks.protocol.durations import (
    DURATION_MAX,
    format_duration,
    parse_duration,
)

MILLISECONDS = st.integers(
    min_value=0, max_value=DURATION_MAX // timedelta(milliseconds=1)
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2 hours", timedelta(hours=2)),
        ("30 minutes", timedelta(minutes=30)),
        ("1 hour", timedelta(hours=1)),
        ("90 s", timedelta(seconds=90)),
        ("500 ms", timedelta(milliseconds=500)),
        ("7 days", timedelta(days=7)),
        ("5m", timedelta(minutes=5)),
        ("5 min", timedelta(minutes=5)),
        (" 2 Weeks ", timedelta(days=14)),
        ("0 seconds", timedelta()),
    ],
)
def test_a_whole_number_and_a_unit_is_a_duration(
    text: str, expected: timedelta
) -> None:
    """The spellings that people use all mean what they say."""
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "2", "hours", "1.5 hours", "-1 s", "1 month", "2 hours 5 minutes", "٣ s"],
)
def test_anything_else_is_refused(text: str) -> None:
    """Nothing is guessed: not a unit, not a fraction, not a month's length."""
    with pytest.raises(ValueError, match=r"it is not|not a unit"):
        parse_duration(text)


@given(MILLISECONDS)
def test_a_formatted_duration_reads_back_the_same(count: int) -> None:
    """The ledger's spelling of a duration loses nothing."""
    duration = timedelta(milliseconds=count)
    assert parse_duration(format_duration(duration)) == duration


@given(st.text(max_size=20))
def test_any_text_is_a_duration_or_a_value_error(text: str) -> None:
    """No spelling makes the parser fail in another way."""
    try:
        duration = parse_duration(text)
    except ValueError:
        return
    assert timedelta() <= duration <= DURATION_MAX


def test_a_duration_over_a_century_is_refused() -> None:
    """A slip of the keyboard does not overflow anything later."""
    with pytest.raises(ValueError, match="100 years"):
        parse_duration("999999999999999 days")


@pytest.mark.parametrize("duration", [timedelta(-1), timedelta(microseconds=1)])
def test_what_no_file_could_say_cannot_be_formatted(duration: timedelta) -> None:
    """Python programs may not use durations that the ledger could not hold."""
    with pytest.raises(ValueError, match="whole number of milliseconds"):
        format_duration(duration)
