"""Rates with and without a monitor are of the same minutes."""

from __future__ import annotations

import pytest

from services.dev.bench.driver_run import MeasuredBatch
from services.dev.bench.monitor_cost import Turn, rates_by_turn
from sinks.protocol.errors import FatalError

_TURNS = (
    Turn(began=100.0, ended=104.0, is_watched=True),
    Turn(began=104.0, ended=108.0, is_watched=False),
)


def _batches(*published_at: float) -> list[MeasuredBatch]:
    return [
        MeasuredBatch(planned_at=at - 3.0, published_at=at, read=1_000)
        for at in published_at
    ]


def test_a_batch_counts_for_the_turn_that_it_lies_in() -> None:
    """One that lies in two turns counts for none, and the first has no beginning."""
    batches = _batches(99.5, 100.5, 101.5, 103.5, 104.5, 105.0, 105.5)
    alone, watched = rates_by_turn(batches, _TURNS)
    assert watched == pytest.approx(2_000 / 3.0)
    assert alone == pytest.approx(2_000 / 1.0)


def test_a_rate_of_no_batch_is_none() -> None:
    """A backlog that ended too early has told nothing."""
    with pytest.raises(FatalError, match="BENCH_INCOMPLETE"):
        rates_by_turn(_batches(100.5, 101.5), _TURNS)
