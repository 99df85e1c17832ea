"""What a pipeline's own functions may report, and where."""

from __future__ import annotations

import math

import pytest

from tallyweir.schemas.pipeline import count, observe
from tallyweir.schemas.pipeline.functions.user_code import CustomFigures
from tallyweir.sinks.protocol.measures import distribution_of


def test_what_is_reported_adds_up() -> None:
    """In the attempt that gathers, and in no other."""
    one, other = CustomFigures(), CustomFigures()
    with one.gathered():
        count("refunds")
        count("refunds", 2)
        observe("euros", 5)
        with other.gathered():
            count("refunds", 100)
        observe("euros", 7)
    assert one.measures().counts == {"refunds": 3}
    assert one.measures().distributions == {"euros": distribution_of([5, 7])}
    assert other.measures().counts == {"refunds": 100}


def test_nobody_reports_where_nobody_gathers() -> None:
    """A transform's count would be lost without a word."""
    with pytest.raises(RuntimeError, match="keyed state"):
        count("refunds")


@pytest.mark.parametrize(
    ("name", "amount"),
    [("Refunds", 1), ("", 1), ("a b", 1), ("fine", -1), ("fine", math.nan)],
)
def test_what_cannot_be_added_up_is_refused(name: str, amount: float) -> None:
    """A name that is no metric's, a counter that falls, a number that is none."""
    figures = CustomFigures()
    with figures.gathered(), pytest.raises(ValueError, match=r"\w"):
        count(name, amount)
    assert figures.measures().counts == {}


def test_names_are_few() -> None:
    """Each batch has all of them in its row."""
    figures = CustomFigures()
    with figures.gathered():
        for number in range(50):
            observe(f"n{number}", 1)
        observe("n0", 1)
        with pytest.raises(ValueError, match="50 names"):
            observe("one_more", 1)
