"""A full catalog has IDs wherever the measured events are looked for."""

from __future__ import annotations

from typing import Any

import pytest

from tallyweir.services.dev.bench.catalog.full_catalog import (
    BUCKET_SECONDS,
    Run,
    figures_of,
    fill_times,
)
from tallyweir.services.dev.bench.world.driver_run import Rates
from tallyweir.services.local.datasets.page_views import (
    EVENTS_PER_SECOND,
    FIRST_VIEW_MICROS,
)
from tallyweir.sinks.protocol.catalog_limits import BUCKETS_PER_HORIZON

_SECOND = 1_000_000


def _buckets(ids: int) -> list[int]:
    """Return the bucket of each ID's event time."""
    times = fill_times(ids)
    seconds = [
        (times["begin_us"] + number * times["gap_us"]) // _SECOND
        for number in range(ids)
    ]
    return [second // BUCKET_SECONDS * BUCKET_SECONDS for second in seconds]


@pytest.mark.parametrize("ids", [1_000, 1_003])
def test_ids_are_spread_over_all_buckets_of_the_horizon_alike(ids: int) -> None:
    """The newest one is that of the measured events, first and last."""
    found = _buckets(ids)
    assert BUCKETS_PER_HORIZON == len(set(found))
    assert {ids // BUCKETS_PER_HORIZON, ids // BUCKETS_PER_HORIZON + 1} >= {
        found.count(bucket) for bucket in sorted(set(found))[:-1]
    }
    last_us = FIRST_VIEW_MICROS + 4 * 2_000_000 // EVENTS_PER_SECOND * _SECOND
    for view_us in (FIRST_VIEW_MICROS, last_us):
        assert max(found) == view_us // _SECOND // BUCKET_SECONDS * BUCKET_SECONDS


def _run(cold: int, warm: int, first: float) -> Run:
    return Run(rates=Rates(cold=cold, warm=warm), first_batch_seconds=first)


def _turn(cold: int, warm: int, first: float) -> tuple[Run, Run]:
    return _run(100, 200, 7.0), _run(cold, warm, first)


_TURNS = [_turn(90, 150, 9.5), _turn(70, 180, 11.0), _turn(85, 100, 9.9)]


def test_the_bars_are_held_by_medians_over_the_turns() -> None:
    """A ratio is of two runs of one turn, one right after the other."""
    figures: dict[str, Any] = figures_of(_TURNS)
    assert {"cold": 0.85, "warm": 0.75} == figures["ratio"]
    assert [(0.9, 0.75), (0.7, 0.9), (0.85, 0.5)] == [
        (one["ratio"]["cold"], one["ratio"]["warm"]) for one in figures["turns"]
    ]
    assert (85, 150, 9.9) == (
        figures["full"]["cold_events_per_second"],
        figures["full"]["events_per_second"],
        figures["full"]["first_batch_seconds"],
    )
