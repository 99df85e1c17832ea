"""A full catalog has IDs wherever the measured events are looked for."""

from __future__ import annotations

import pytest

from services.bench.full_catalog import (
    BUCKET_SECONDS,
    BUCKETS,
    check_buckets,
    fill_batch,
    fill_times,
    ratios_of,
)
from services.bench.rates import Rates
from services.datasets.page_views import EVENTS_PER_SECOND, FIRST_VIEW_MICROS
from sinks.protocol.errors import FatalError

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
    assert BUCKETS == len(set(found))
    assert {ids // BUCKETS, ids // BUCKETS + 1} >= {
        found.count(bucket) for bucket in sorted(set(found))[:-1]
    }
    last_us = FIRST_VIEW_MICROS + 4 * 2_000_000 // EVENTS_PER_SECOND * _SECOND
    for view_us in (FIRST_VIEW_MICROS, last_us):
        assert max(found) == view_us // _SECOND // BUCKET_SECONDS * BUCKET_SECONDS
    check_buckets(sorted(set(found)), ids)


def test_a_catalog_without_ids_in_the_events_bucket_leaves_no_figure() -> None:
    """Nothing would be found there, and nothing be searched."""
    found = sorted(set(_buckets(1_000)))
    with pytest.raises(FatalError, match="BENCH_WRONG"):
        check_buckets(found[:-1], 1_000)


def test_a_catalog_is_filled_by_batches_of_which_most_are_merged() -> None:
    """The last sixteen stay runs."""
    assert [10_000, 10_000, 50_000, 500_000] == [
        fill_batch(ids) for ids in (1_000_000, 2_000_000, 10_000_000, 100_000_000)
    ]


def test_the_full_catalog_is_compared_with_the_empty_one() -> None:
    """Below one where it is slower."""
    ratios = ratios_of(Rates(cold=80, warm=150), Rates(cold=100, warm=200))
    assert {"cold": 0.8, "warm": 0.75} == ratios
