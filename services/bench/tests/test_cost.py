"""Costs are differences between two looks, by event."""

from __future__ import annotations

import os

import pytest

from services.bench.cost import Spent, cost_between
from sinks.protocol.errors import FatalError


def test_costs_are_of_the_events_between_two_looks() -> None:
    """What was spent before the first look, on starting, belongs to nobody."""
    cores = os.cpu_count() or 1
    before = Spent(
        events=1_000,
        cpu_seconds={"jvm": 30.0, "postgres": 1.0},
        log_bytes=5_000,
        at=10.0,
    )
    after = Spent(
        events=501_000,
        cpu_seconds={"jvm": 30.0 + cores, "postgres": 1.0 + cores / 2},
        log_bytes=5_000 + 500_000 * 140,
        at=13.0,
    )
    cost = cost_between(before, after)
    assert cost == {
        "cpu_seconds_per_million": {"jvm": 2.0 * cores, "postgres": float(cores)},
        "share_of_cores": 0.5,
        "log_bytes_per_event": 140,
    }


def test_a_round_within_one_batch_has_no_cost() -> None:
    """Nothing is divided by no events."""
    look = Spent(events=600_000, cpu_seconds={"jvm": 9.0}, log_bytes=5_000, at=10.0)
    with pytest.raises(FatalError, match="No batch ended"):
        cost_between(look, look)
