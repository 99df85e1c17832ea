"""How many executors help while one task works on a hot key."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tallyweir.sinks.scaling.decision import Because
from tallyweir.sinks.scaling.tests.observed_loads import (
    FREE,
    decide_all,
    stands,
    steady,
)


@pytest.mark.parametrize(
    ("present", "share", "then"),
    # While one core does the key, so many are three quarters busy.
    [(1, 0.9, 1), (1, 0.7, 1), (1, 0.6, 2), (2, 0.3, 4), (2, 0.5, 2), (1, 0.01, 2)],
)
def test_a_key_that_one_task_does_sets_how_many_executors_help(
    present: int, share: float, then: int
) -> None:
    """However busy those are that are there, and however long the backlog is."""
    busy = min(0.95, 1 / (share * present))
    seen = [
        replace(one, steps_s=one.busy_s, hot_key_s=share * one.busy_s)
        for one in steady(
            arriving=5_000, done=1_000, busy=busy, executors=present, backlog=50_000
        )
    ]
    decisions = decide_all(FREE, seen, stands(present))
    first = next((one for one in decisions if one.because is Because.BACKLOG), None)
    if then == present:
        assert first is None
        assert decisions[-1].because is Because.HOT_KEY
        assert decisions[-1].standing.executors == present
        assert f"One key takes {share:.0%}" in decisions[-1].reason
        assert decisions[-1].wanted is not None
        assert decisions[-1].wanted > present
    else:
        assert first is not None
        assert first.standing.executors == then


def test_no_executor_that_is_there_goes_for_a_hot_key() -> None:
    """It does help a little, and a backlog waits."""
    seen = [
        replace(one, steps_s=one.busy_s, hot_key_s=0.8 * one.busy_s)
        for one in steady(
            arriving=5_000, done=1_000, busy=0.6, executors=2, backlog=50_000
        )
    ]
    decisions = decide_all(FREE, seen, stands(2))
    assert {one.standing.executors for one in decisions} == {2}
    assert decisions[-1].because is Because.HOT_KEY
