"""Which windows an event falls into, by every kind and on every day."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallyweir.sinks.postgres.outputs.window_columns import (
    AlignedWindows,
    SessionWindows,
)
from tallyweir.spark_jobs.task.window_assignment import (
    assign_windows,
    join_sessions,
)

_S = 1_000_000
_HOUR = 3600 * _S
_DAY = 24 * _HOUR
_BERLIN = ZoneInfo("Europe/Berlin")


def _us(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _in_berlin(instant_us: int) -> datetime:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=instant_us)
    return moment.astimezone(_BERLIN)


def _spans(at_us: int, windows: AlignedWindows) -> list[tuple[int, int]]:
    assigned = assign_windows(np.array([at_us]), windows)
    return sorted(zip(assigned.starts.tolist(), assigned.ends.tolist(), strict=True))


def _berlin(size_us: int, every_us: int | None = None) -> AlignedWindows:
    return AlignedWindows(
        size_us=size_us, every_us=every_us or size_us, time_zone="Europe/Berlin"
    )


@settings(deadline=None)
@given(
    times=st.lists(st.integers(-100, 100), min_size=1, max_size=20),
    every=st.integers(1, 12),
    more=st.integers(0, 30),
)
def test_an_event_is_in_every_sliding_window_that_holds_it(
    times: list[int], every: int, more: int
) -> None:
    """Also where the size is no multiple of the step, and before 1970."""
    size = every + more
    windows = AlignedWindows(size_us=size, every_us=every)
    assigned = assign_windows(np.array(times), windows)
    found = sorted(
        zip(
            assigned.rows.tolist(),
            assigned.starts.tolist(),
            assigned.ends.tolist(),
            strict=True,
        )
    )
    assert found == sorted(
        (row, start, start + size)
        for row, at in enumerate(times)
        for start in range(-200, 200)
        if start % every == 0 and start <= at < start + size
    )


@pytest.mark.parametrize(
    ("day", "hours"),
    [
        (datetime(2026, 3, 28, tzinfo=_BERLIN), 24),
        (datetime(2026, 3, 29, tzinfo=_BERLIN), 23),
        (datetime(2026, 10, 24, tzinfo=_BERLIN), 24),
        (datetime(2026, 10, 25, tzinfo=_BERLIN), 25),
    ],
)
def test_a_day_is_as_long_as_the_local_clock_makes_it(
    day: datetime, hours: int
) -> None:
    """It begins and ends at midnight, on both days of change."""
    first = _us(day)
    last = first + hours * _HOUR - 1
    span = (first, first + hours * _HOUR)
    assert [span] == _spans(first, _berlin(_DAY)) == _spans(last, _berlin(_DAY))
    assert [span] != _spans(last + 1, _berlin(_DAY))
    assert 0 == _in_berlin(span[1]).hour


def test_a_week_has_an_hour_less_or_more_when_the_clock_changes() -> None:
    """From midnight to midnight, seven days on."""
    ((start, end),) = _spans(
        _us(datetime(2026, 3, 29, 12, tzinfo=UTC)), _berlin(7 * _DAY)
    )
    assert 7 * 24 - 1 == (end - start) // _HOUR
    assert (0, 0) == (_in_berlin(start).hour, _in_berlin(end).hour)


def test_the_hour_that_occurs_twice_makes_two_windows() -> None:
    """Half past two before the change, and half past two after it."""
    before = _us(datetime(2026, 10, 25, 0, 30, tzinfo=UTC))
    after = _us(datetime(2026, 10, 25, 1, 30, tzinfo=UTC))
    assert "02:30" == f"{_in_berlin(before):%H:%M}" == f"{_in_berlin(after):%H:%M}"
    (first,), (second,) = _spans(before, _berlin(_HOUR)), _spans(after, _berlin(_HOUR))
    assert first[1] == second[0]
    assert (_HOUR, _HOUR) == (first[1] - first[0], second[1] - second[0])


def test_the_hour_that_is_left_out_makes_none() -> None:
    """From one until three there is one hour."""
    (before,) = _spans(_us(datetime(2026, 3, 29, 0, 59, tzinfo=UTC)), _berlin(_HOUR))
    (after,) = _spans(_us(datetime(2026, 3, 29, 1, 0, tzinfo=UTC)), _berlin(_HOUR))
    assert before[1] == after[0]
    assert (1, 3) == (_in_berlin(before[0]).hour, _in_berlin(after[0]).hour)


@pytest.mark.parametrize("change", [(2026, 3, 29), (2026, 10, 25)])
@pytest.mark.parametrize(
    "zone", ["Europe/Berlin", "Australia/Lord_Howe", "Asia/Kolkata"]
)
@pytest.mark.parametrize("hours", [1.5, 2, 2.5, 3, 6, 24])
def test_fixed_windows_cover_a_change_without_gap_or_overlap(
    change: tuple[int, int, int], zone: str, hours: float
) -> None:
    """Whatever the size, each moment is in one window, which begins where one ends."""
    noon = _us(datetime(*change, 12, tzinfo=UTC))
    times = np.arange(noon - 2 * _DAY, noon + 2 * _DAY, 300 * _S)
    size = int(hours * _HOUR)
    windows = AlignedWindows(size_us=size, every_us=size, time_zone=zone)
    assigned = assign_windows(times, windows)
    assert sorted(assigned.rows.tolist()) == list(range(len(times)))
    assert (assigned.starts <= times[assigned.rows]).all()
    assert (times[assigned.rows] < assigned.ends).all()
    spans = sorted(
        set(zip(assigned.starts.tolist(), assigned.ends.tolist(), strict=True))
    )
    for former, following in pairwise(spans):
        assert former[1] == following[0]


@pytest.mark.parametrize("change", [(2026, 3, 29), (2026, 10, 25)])
def test_sliding_days_hold_what_lies_between_their_ends(
    change: tuple[int, int, int],
) -> None:
    """Two days every half a day, over a change: each event sees the same windows."""
    noon = _us(datetime(*change, 12, tzinfo=UTC))
    times = np.arange(noon - 4 * _DAY, noon + 4 * _DAY, 1200 * _S)
    assigned = assign_windows(times, _berlin(2 * _DAY, _DAY // 2))
    spans = set(zip(assigned.starts.tolist(), assigned.ends.tolist(), strict=True))
    assert len(spans) == len({start for start, _ in spans})
    seen = set(
        zip(
            assigned.rows.tolist(),
            assigned.starts.tolist(),
            assigned.ends.tolist(),
            strict=True,
        )
    )
    assert seen == {
        (row, start, end)
        for row, at in enumerate(times.tolist())
        for start, end in spans
        if start <= at < end
    }
    assert {47, 48, 49} >= {(end - start) // _HOUR for start, end in spans}


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 60), st.sampled_from(["a", "b", None]), st.booleans()),
        max_size=25,
    )
)
def test_sessions_of_a_task_end_at_a_pause(
    events: list[tuple[int, str | None, bool]],
) -> None:
    """A pause of exactly the gap ends a session; null is a group of its own."""
    gap = 5
    times = np.array([at for at, *_ in events], dtype=np.int64)
    assigned = join_sessions(
        assign_windows(times, SessionWindows(gap_us=gap)),
        [
            pa.array([key for _, key, _ in events], pa.string()),
            pa.array([flag for *_, flag in events], pa.bool_()),
        ],
    )
    for row, (at, *group) in enumerate(events):
        mates = {other for other, *others in events if others == group}
        start = at
        while any(start - gap < other < start for other in mates):
            start = max(o for o in mates if start - gap < o < start)
        last = at
        while any(last < other < last + gap for other in mates):
            last = min(o for o in mates if last < o < last + gap)
        assert (start, last + gap) == (assigned.starts[row], assigned.ends[row])
