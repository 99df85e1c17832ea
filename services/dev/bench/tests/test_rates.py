"""Rates by batch: the first round, the last one, and nothing of those between."""

from __future__ import annotations

import pytest

from tallyweir.services.dev.bench.world.bench_world import Rounds
from tallyweir.services.dev.bench.world.driver_run import MeasuredBatch, rates_of
from tallyweir.services.process.endpoints import Endpoints


def _batches(*reads_and_ends: tuple[int, float]) -> list[MeasuredBatch]:
    began = 10.0
    batches = []
    for read, ended in reads_and_ends:
        batches.append(MeasuredBatch(planned_at=began, published_at=ended, read=read))
        began = ended + 0.5
    return batches


def _rounds(count: int) -> Rounds:
    nowhere = Endpoints(kafka_bootstrap="", home_dsn="")
    return Rounds(endpoints=nowhere, events=100, count=count, distinct=100 * count)


def test_pauses_between_batches_count_and_rounds_between_do_not() -> None:
    """A rate is wall time over a whole round."""
    batches = _batches((50, 11.0), (50, 12.0), (100, 100.0), (60, 101.0), (40, 104.0))
    rates = rates_of(batches, _rounds(3))
    assert (50.0, 25.0) == (rates.cold, rates.warm)


def test_a_batch_of_two_rounds_belongs_to_the_first_of_them() -> None:
    """The last round has whole batches only."""
    batches = _batches((150, 13.0), (50, 15.0))
    rates = rates_of(batches, _rounds(2))
    assert (50.0, 25.0) == (rates.cold, rates.warm)


def test_a_run_without_a_batch_of_the_last_round_has_no_rates() -> None:
    """Batches were too large to tell warm from cold."""
    with pytest.raises(AssertionError, match="last round"):
        rates_of(_batches((200, 12.0)), _rounds(2))
