"""Ages of events are known to a tenth, however they are put together."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallyweir.sinks.protocol.measures import (
    Measures,
    age_bucket,
    age_quantile_s,
    aged,
    measures_json,
    middle_age_s,
    parse_measures,
)

_AGES = st.floats(min_value=0.002, max_value=90 * 86_400)


def _counted(ages: list[float]) -> dict[int, int]:
    return dict(Counter(map(age_bucket, ages)))


@given(st.lists(_AGES, min_size=1, max_size=60), st.floats(0, 10_000))
def test_a_percentile_is_a_tenth_off_at_most(ages: list[float], later: float) -> None:
    """Also after the seconds that a batch takes until it is committed."""
    found = aged(_counted(ages), later)
    assert sum(found.values()) == len(ages)
    for share in (0.5, 0.95, 0.99, 1.0):
        truth = sorted(ages)[math.ceil(share * len(ages)) - 1] + later
        at = age_quantile_s(found, share)
        assert at is not None
        assert at == pytest.approx(truth, rel=0.1)


@given(st.lists(_AGES, max_size=30), st.lists(_AGES, max_size=30))
def test_ages_of_tasks_add_up(ours: list[float], others: list[float]) -> None:
    """And travel with the votes."""
    added = Measures(ages=_counted(ours)) + Measures(ages=_counted(others))
    assert added.ages == _counted([*ours, *others])
    assert parse_measures(measures_json(added)) == added


def test_an_event_from_ahead_of_the_clock_is_new() -> None:
    """The clocks of a broker and of the home differ."""
    assert age_bucket(-3.0) == age_bucket(0.0) == 0
    assert middle_age_s(0) < 0.002


def test_of_no_event_nothing_is_known() -> None:
    """Not 0 seconds."""
    assert age_quantile_s({}, 0.5) is None
    assert aged({}, 3.0) == {}
