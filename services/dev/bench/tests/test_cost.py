"""Costs are differences between two looks, by event."""

from __future__ import annotations

import os

import pytest

from tallyweir.services.dev.bench.cost import Spent, cost_between
from tallyweir.services.dev.bench.world.resource_readings import (
    Phases,
    parse_phases,
    phases_between,
)
from tallyweir.sinks.protocol.errors import FatalError


def test_costs_are_of_the_events_between_two_looks() -> None:
    """What was spent before the first look, on starting, belongs to nobody."""
    cores = os.cpu_count() or 1
    before = Spent(
        events=1_000,
        cpu_seconds={"jvm": 30.0, "postgres": 1.0},
        log_bytes=5_000,
        phases=Phases(batches=1, read=1_000, seconds={"stage": 3.0, "publish": 0.5}),
        at=10.0,
    )
    after = Spent(
        events=501_000,
        cpu_seconds={"jvm": 30.0 + cores, "postgres": 1.0 + cores / 2},
        log_bytes=5_000 + 500_000 * 140,
        phases=Phases(batches=3, read=501_000, seconds={"stage": 5.0, "publish": 0.8}),
        at=13.0,
    )
    cost = cost_between(before, after)
    assert cost == {
        "cpu_seconds_per_million": {"jvm": 2.0 * cores, "postgres": float(cores)},
        "share_of_cores": 0.5,
        "log_bytes_per_event": 140,
        "events_per_batch": 250_000,
        "seconds_per_batch": {"stage": 1.0, "publish": 0.15},
    }


def test_a_round_within_one_batch_has_no_cost() -> None:
    """Nothing is divided by no events."""
    look = Spent(
        events=600_000,
        cpu_seconds={"jvm": 9.0},
        log_bytes=5_000,
        phases=Phases(batches=2, read=600_000, seconds={}),
        at=10.0,
    )
    with pytest.raises(FatalError, match="No batch ended"):
        cost_between(look, look)


_METRICS = """\
# TYPE tallyweir_rows_read counter
tallyweir_rows_read_total{pipeline="p"} 500000.0
# TYPE tallyweir_batch_phase_duration_seconds histogram
tallyweir_batch_phase_duration_seconds_count{phase="stage",pipeline="p"} 2.0
tallyweir_batch_phase_duration_seconds_sum{phase="stage",pipeline="p"} 1.5
tallyweir_batch_phase_duration_seconds_count{phase="publish",pipeline="p"} 2.0
tallyweir_batch_phase_duration_seconds_sum{phase="publish",pipeline="p"} 0.5
"""


def test_phases_are_read_from_the_metrics_of_the_driver() -> None:
    """By the names that docs/metrics.md has."""
    phases = parse_phases(_METRICS)
    assert (2, 500_000) == (phases.batches, phases.read)
    assert {"stage": 1.5, "publish": 0.5} == phases.seconds
    assert Phases(batches=0, read=0, seconds={}) == parse_phases("")


def test_a_look_at_metrics_without_a_batch_between_is_no_average() -> None:
    """As for the ledger, which a look may be ahead of."""
    phases = parse_phases(_METRICS)
    with pytest.raises(FatalError, match="No batch ended"):
        phases_between(phases, phases)
