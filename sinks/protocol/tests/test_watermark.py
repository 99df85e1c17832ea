"""The watermark."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallyweir.sinks.protocol.watermark import (
    PartitionClock,
    advance_clock,
    advance_watermark,
)

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


@pytest.mark.parametrize(
    ("met_for_us", "expected"), [(_IDLE_US, 3), (_IDLE_US + 1, 490)]
)
def test_a_partition_that_was_met_holds_it_until_the_timeout(
    met_for_us: int, expected: int
) -> None:
    """Its first events may be as old as any; after the timeout nobody waits."""
    clocks = [_clock(500), _clock(None, 1000 - met_for_us)]
    assert expected == _advance(3, clocks)


def test_a_partition_that_nobody_saw_holds_nothing() -> None:
    """Positions that were written before clocks were are as idle ones."""
    assert 490 == _advance(None, [_clock(500), _clock(None, None), _clock(7, None)])


def test_a_clock_never_passes_the_databases() -> None:
    """An event of tomorrow moves it to now, and an older one does not turn it back."""
    ahead = advance_clock(None, 86_400, now_us=1000)
    assert _clock(1000) == ahead
    assert _clock(1000, 1500) == advance_clock(ahead, 700, now_us=1500)
    assert _clock(1400, 1500) == advance_clock(ahead, 1400, now_us=1500)


def test_a_batch_without_events_leaves_a_clock_as_it_was() -> None:
    """To be read is no sign of life; to be met for the first time is."""
    assert _clock(7, 500) == advance_clock(_clock(7, 500), None, now_us=1000)
    assert _clock(None, 1000) == advance_clock(None, None, now_us=1000)
    noted = _clock(None, None)
    assert _clock(None, 1000) == advance_clock(noted, None, now_us=1000)
    assert _clock(7, None) == advance_clock(_clock(7, None), None, now_us=1000)


_batches = st.lists(
    st.tuples(
        # What each of up to four partitions brings; a later one joins later.
        st.dictionaries(st.integers(0, 3), st.none() | st.integers(-500, 9000)),
        st.integers(0, 300),
    ),
    max_size=12,
)


@given(batches=_batches)
def test_over_any_batches_it_rises_and_stays_behind_every_active_clock(
    batches: list[tuple[dict[int, int | None], int]],
) -> None:
    """What is stored between two batches is all there is, so a restart is a batch."""
    clocks: dict[int, PartitionClock] = {}
    watermark: int | None = None
    now_us = 1000
    for brought, passed_us in batches:
        now_us += passed_us
        for partition, time_us in brought.items():
            clocks[partition] = advance_clock(
                clocks.get(partition), time_us, now_us=now_us
            )
        after = _advance(watermark, list(clocks.values()), now_us=now_us)
        active = [
            clock.event_time_max_us
            for clock in clocks.values()
            if clock.is_active(idle_timeout_us=_IDLE_US, now_us=now_us)
        ]
        if after != watermark:
            assert after is not None
            assert watermark is None or watermark < after
            assert after == min(t for t in active if t is not None) - 10 <= now_us - 10
            assert None not in active
        watermark = after


def test_with_every_partition_idle_it_stays() -> None:
    """Without new events nothing is known about those still to come."""
    assert 3 == _advance(3, [_clock(500, active_at_us=0)])
