"""The watermark."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.protocol.watermark import PartitionClock, advance_watermark

_IDLE_US = 100


def _advance(
    former_us: int | None, clocks: list[PartitionClock], *, now_us: int = 1000
) -> int | None:
    return advance_watermark(
        former_us, clocks, delay_us=10, idle_timeout_us=_IDLE_US, now_us=now_us
    )


def _clock(time_us: int | None, active_at_us: int | None = 1000) -> PartitionClock:
    return PartitionClock(event_time_max_us=time_us, active_at_us=active_at_us)


_clocks = st.lists(
    st.builds(
        PartitionClock,
        event_time_max_us=st.none() | st.integers(-500, 500),
        active_at_us=st.none() | st.integers(0, 1000),
    ),
    max_size=4,
)


@given(history=st.lists(st.tuples(_clocks, st.integers(0, 1500)), max_size=8))
def test_it_never_goes_back_whatever_happens(
    history: list[tuple[list[PartitionClock], int]],
) -> None:
    """Any history of clocks, joining, leaving, or going back, only raises it."""
    watermark: int | None = None
    for clocks, now_us in history:
        after = _advance(watermark, clocks, now_us=now_us)
        assert watermark is None or (after is not None and after >= watermark)
        watermark = after


@given(times=st.lists(st.integers(-500, 500), min_size=1))
def test_it_is_the_slowest_active_partition_less_the_delay(times: list[int]) -> None:
    """The minimum over partitions, so that no active one's events are late."""
    assert min(times) - 10 == _advance(None, [_clock(time_us) for time_us in times])


def test_without_any_event_there_is_none() -> None:
    """A watermark before the first event would be invented."""
    assert _advance(None, []) is None
    assert _advance(None, [_clock(None)]) is None


@pytest.mark.parametrize(
    ("idle_for_us", "expected"), [(_IDLE_US, -5), (_IDLE_US + 1, 490)]
)
def test_a_partition_leaves_the_minimum_after_the_timeout(
    idle_for_us: int, expected: int
) -> None:
    """Exactly at the timeout it still counts; later it does not."""
    clocks = [_clock(5, active_at_us=1000 - idle_for_us), _clock(500)]
    assert expected == _advance(None, clocks)


def test_a_partition_that_never_had_an_event_holds_nothing() -> None:
    """A new and empty partition does not stop the others' windows."""
    assert 490 == _advance(None, [_clock(500), _clock(None, None), _clock(7, None)])


def test_with_every_partition_idle_it_stays() -> None:
    """Without new events nothing is known about those still to come."""
    assert 3 == _advance(3, [_clock(500, active_at_us=0)])
