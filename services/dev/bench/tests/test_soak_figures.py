"""What a long run's samples say of it."""

from __future__ import annotations

from typing import Any

import pytest

from tallyweir.services.dev.bench.soak.soak_figures import (
    FILTER_BYTES_PER_ID,
    STORED_BYTES_PER_ID,
    Sample,
    expected_ids,
    judge,
    rate_while_loaded,
    spans_of,
)
from tallyweir.services.dev.bench.world.driver_run import MeasuredBatch
from tallyweir.services.local.datasets.page_views import (
    EVENTS_PER_SECOND,
    FIRST_VIEW_MICROS,
)
from tallyweir.sinks.protocol.errors import FatalError

_RATE = 100_000
_IDS = 20_000_000
_STEP_S = 10
_FIRST_S = FIRST_VIEW_MICROS / 1_000_000


def _sample(number: int, **changed: object) -> Sample:
    """Look at a run for the so-manieth time, at which all is as it must be."""
    sent = number * _STEP_S * _RATE
    plain: dict[str, Any] = {
        "at": 1_000.0 + number * _STEP_S,
        "sent": sent + 50_000,
        "read": sent,
        "memory_bytes": {
            "jvm": 1_500_000_000,
            "python": 500_000_000,
            "driver": 200_000_000,
            "postgres": 800_000_000,
            "broker": 600_000_000,
        },
        "ids": _IDS,
        "expected_ids": _IDS,
        "catalog_bytes": round(_IDS * STORED_BYTES_PER_ID),
    }
    return Sample(**(plain | changed))


def _judge(samples: list[Sample]) -> dict[str, bool]:
    spans = spans_of(samples, began=1_000.0)
    return judge(spans, settling_s=20.0, rate=_RATE)[1]


def test_a_run_that_stays_as_it_was_holds_all_bars() -> None:
    """Nothing that is compared differs."""
    samples = [_sample(number) for number in range(12)]
    compared, holds = judge(
        spans_of(samples, began=1_000.0), settling_s=20.0, rate=_RATE
    )
    assert {"memory_flat", "throughput_flat", "catalog_as_computed"} == set(holds)
    assert all(holds.values())
    assert _RATE == compared["events_per_second"]["last"]
    assert 1.0 == compared["flat_bytes"]["ratio"]


def test_memory_that_grows_by_more_than_a_twentieth_is_not_flat() -> None:
    """Six in a hundred of all of the pipeline's, in whatever part it is."""
    grown = [
        _sample(
            number,
            memory_bytes=dict(_sample(0).memory_bytes)
            | {"jvm": 1_500_000_000 + number * 30_000_000},
        )
        for number in range(12)
    ]
    assert not _judge(grown)["memory_flat"]


def test_what_ids_take_by_design_is_not_counted_as_growth() -> None:
    """The same growth, of IDs that came meanwhile."""
    more = 100_000_000
    grown = [
        _sample(
            number,
            ids=_IDS + number * more // 12,
            memory_bytes=dict(_sample(0).memory_bytes)
            | {"driver": 200_000_000 + round(FILTER_BYTES_PER_ID * number * more / 12)},
        )
        for number in range(12)
    ]
    assert _judge(grown)["memory_flat"]


def test_the_brokers_memory_is_not_ours() -> None:
    """It is told, and not judged."""
    grown = [
        _sample(
            number,
            memory_bytes=dict(_sample(0).memory_bytes)
            | {"broker": number * 10_000_000_000},
        )
        for number in range(12)
    ]
    assert _judge(grown)["memory_flat"]


def test_a_rate_that_falls_or_a_lag_that_rises_is_not_flat() -> None:
    """Less is read than at first, or more waits than comes in five seconds."""
    slower = [
        _sample(number, read=round(number * _STEP_S * _RATE * (1 - number / 100)))
        for number in range(12)
    ]
    assert not _judge(slower)["throughput_flat"]
    waiting = [
        _sample(number, sent=_sample(number).read + number * 100_000)
        for number in range(12)
    ]
    assert not _judge(waiting)["throughput_flat"]


def test_a_run_that_has_caught_up_at_first_may_read_as_fast_as_is_sent() -> None:
    """A pause before it is no higher rate."""
    caught_up = [
        _sample(number, read=_sample(number).read - max(0, 6 - number) * 200_000)
        for number in range(12)
    ]
    assert all(_judge(caught_up).values())


@pytest.mark.parametrize("wrong", [0.9, 1.1])
def test_a_catalog_that_is_larger_or_smaller_than_computed_is_found(
    wrong: float,
) -> None:
    """IDs that were not forgotten, or are not there."""
    samples = [
        _sample(number, catalog_bytes=round(_IDS * STORED_BYTES_PER_ID * wrong))
        for number in range(12)
    ]
    assert not _judge(samples)["catalog_as_computed"]


def test_what_comes_before_a_run_has_settled_is_left_out() -> None:
    """A cold start differs in all of it."""
    samples = [_sample(number) for number in range(12)]
    samples[1] = _sample(1, read=0, catalog_bytes=0, ids=0)
    assert all(_judge(samples).values())


def test_a_run_that_was_hardly_looked_at_has_no_figures() -> None:
    """A third is at least one span."""
    with pytest.raises(FatalError, match="2 spans"):
        _judge([_sample(number) for number in range(5)])


def test_each_span_tells_its_own_rate() -> None:
    """From one look to the next."""
    _, second = spans_of([_sample(n) for n in range(3)], began=1_000.0)
    assert 20 == second["second"]
    assert (_RATE, _RATE) == (second["events_per_second"], second["sent_per_second"])
    assert 50_000 == second["lag_records"]


def test_ids_are_alive_from_the_bucket_that_the_horizon_reaches() -> None:
    """Whole buckets are forgotten, so up to one more than the horizon is there."""
    committed = 10_000 * EVENTS_PER_SECOND

    def alive(watermark_s: float) -> int:
        return expected_ids(
            committed, watermark_s=watermark_s, horizon_s=3_600, bucket_seconds=450
        )

    # 2024-01-01 began with a bucket.
    assert committed == alive(_FIRST_S + 3_600.0)
    assert committed == alive(_FIRST_S + 3_600.0 + 449.9)
    assert committed - 450 * EVENTS_PER_SECOND == alive(_FIRST_S + 3_600.0 + 450.0)
    assert committed - 5_850 * EVENTS_PER_SECOND == alive(_FIRST_S + 9_880.0)
    assert 7 == expected_ids(7, watermark_s=None, horizon_s=60, bucket_seconds=60)


def test_the_most_is_what_was_committed_from_one_batch_to_another() -> None:
    """The first one began before; those outside of the span do not count."""
    batches = [
        MeasuredBatch(planned_at=0.0, published_at=at, read=read)
        for at, read in ((5.0, 900), (10.0, 700), (12.0, 100), (15.0, 400), (21.0, 900))
    ]
    assert 100.0 == rate_while_loaded(batches, begin=9.0, end=20.0)
    with pytest.raises(FatalError, match="Only 2 batches"):
        rate_while_loaded(batches, begin=11.0, end=20.0)
