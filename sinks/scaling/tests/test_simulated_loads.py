"""The loads of docs/scaling.md, run through the rules: the promises of its table."""

from __future__ import annotations

import pytest

from tallyweir.sinks.scaling.decision import Because
from tallyweir.sinks.scaling.tests.simulated_cluster import (
    LEAST,
    MOST,
    SimulatedCluster,
    daily_wave,
    drip,
    recorded_week,
    spike,
)

_DAY_S = 24 * 300


def test_a_spike_is_worked_off_at_half_the_cost_of_enough_executors() -> None:
    """It ends with the least, after one rise and one fall."""
    cluster = SimulatedCluster(spike, 3_600)
    steered = cluster.run()
    assert max(cluster.running) == MOST
    assert cluster.running[-1] == LEAST
    assert steered.behind_s <= 120
    assert steered.changes <= 6
    fixed = SimulatedCluster(spike, 3_600, MOST).run()
    assert steered.executor_s < fixed.executor_s / 4


def test_a_daily_wave_is_followed_without_falling_behind() -> None:
    """The trend has executors there before they are needed."""
    steered = SimulatedCluster(daily_wave, 4 * 3_600).run()
    assert steered.behind_s == 0
    assert steered.changes <= 20
    fixed = SimulatedCluster(daily_wave, 4 * 3_600, MOST).run()
    assert steered.executor_s < 0.65 * fixed.executor_s


def test_a_drip_keeps_the_least_and_changes_nothing() -> None:
    """Bursts that one executor works off in seconds are no trend."""
    steered = SimulatedCluster(drip, 3_600).run()
    assert steered.changes == 0
    assert steered.executor_s == 3_600 * LEAST


def test_a_recorded_day_is_followed() -> None:
    """People's flights: a night, a steep morning, and a long day."""
    steered = SimulatedCluster(recorded_week, 2 * _DAY_S).run()
    assert steered.behind_s <= 150
    assert steered.changes <= 60
    fixed = SimulatedCluster(recorded_week, 2 * _DAY_S, MOST).run()
    assert steered.executor_s < 0.65 * fixed.executor_s


@pytest.mark.parametrize("load", [spike, daily_wave, drip])
def test_every_decision_tells_why(load: object) -> None:
    """In words, for whoever reads the table."""
    assert callable(load)
    cluster = SimulatedCluster(load, 1_800)
    cluster.run()
    assert all(one.reason.endswith(".") for one in cluster.decisions)
    assert {one.because for one in cluster.decisions} <= set(Because)
