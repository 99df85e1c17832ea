"""Two runs are compared by what their tables say, wherever batches ended."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from tallyweir.services.dev.chaos.templates.results import Rows, compare_results

_NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
_WINDOW = ("a", _NOON, 3, 0.1 + 0.2, Decimal("1.5"), None)


def _differences(undisturbed: Rows, killed: Rows) -> list[str]:
    return compare_results({"t": undisturbed}, {"t": killed})


def test_the_same_rows_in_another_order_are_equal() -> None:
    """Sums of doubles may differ where they were added in another order."""
    other = ("a", _NOON, 3, 0.3, Decimal("1.500000000000001"), None)
    lone = ("b", _NOON, 1, 2.0, None, None)
    assert not _differences([_WINDOW, lone], [lone, other])


@pytest.mark.parametrize(
    "changed",
    [
        ("b", *_WINDOW[1:]),
        (_WINDOW[0], _NOON + dt.timedelta(microseconds=1), *_WINDOW[2:]),
        (*_WINDOW[:2], 4, *_WINDOW[3:]),
        (*_WINDOW[:3], 0.300001, *_WINDOW[4:]),
        (*_WINDOW[:4], Decimal("1.500001"), None),
        (*_WINDOW[:4], None, None),
        (*_WINDOW[:5], 0.0),
    ],
)
def test_each_value_that_differs_is_told(changed: tuple[object, ...]) -> None:
    """A number, an instant, a text; null is not zero."""
    assert _differences([_WINDOW], [changed])
    assert _differences([changed], [_WINDOW])


def test_rows_that_are_lost_or_doubled_are_told() -> None:
    """With how many there are of them."""
    assert _differences([_WINDOW], [])[0].startswith("t: missing (1): ['a', ")
    assert _differences([_WINDOW], [_WINDOW] * 3)[0].startswith("t: too many (2): ")


def test_many_differences_are_told_in_a_few_lines() -> None:
    """The first ones, and how many more there are."""
    told = _differences([(number,) for number in range(9)], [])
    assert len(told) == 6
    assert told[-1] == "t: and 4 more"


def test_a_table_of_one_run_only_is_a_difference() -> None:
    """Even an empty one."""
    assert compare_results({"t": []}, {}) == ["t: only one of the runs has it"]
