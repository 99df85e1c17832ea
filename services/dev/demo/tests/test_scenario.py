"""A scenario is repeatable, and holds what its kills need."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallyweir.services.dev.demo.scenario import write_scenario
from tallyweir.services.local.datasets.flights import FLIGHTS_TOTAL

events = st.integers(1, FLIGHTS_TOTAL)
seeds = st.integers(0, 1_000)


@given(events, seeds)
def test_the_seed_decides_everything(events: int, seed: int) -> None:
    """Two demos of the same seed go wrong in the same way."""
    assert write_scenario(events, seed) == write_scenario(events, seed)


def test_another_seed_is_another_scenario() -> None:
    """The seed is not just carried along."""
    kills = {write_scenario(20_000, seed).kills for seed in range(20)}
    assert len(kills) == 20


@given(events, seeds)
def test_exactly_one_restart_has_no_checkpoint(events: int, seed: int) -> None:
    """The checkpoint is deleted once, whatever the seed."""
    scenario = write_scenario(events, seed)
    assert [kill.loses_checkpoint for kill in scenario.kills].count(True) == 1


@given(events, seeds)
def test_a_part_holds_the_batch_to_die_in(events: int, seed: int) -> None:
    """A driver finds a batch to be killed in after those it may publish."""
    scenario = write_scenario(events, seed)
    for part, kill in zip(scenario.parts, scenario.kills, strict=True):
        assert part > kill.batches_before * scenario.batch_offsets_max
        assert 0.0 < kill.moment < 1.0


@pytest.mark.parametrize("events", [10_000, 20_000, FLIGHTS_TOTAL])
def test_a_demo_has_at_least_twelve_batches(events: int) -> None:
    """Kills, restarts and repeats are spread over many batches."""
    scenario = write_scenario(events, 7)
    assert scenario.messages / scenario.batch_offsets_max > 12
