"""What is decided, for every input that the strategies below can think of."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.scaling.bounds import Bounds, Range, parse_range
from tallyweir.sinks.scaling.decision import (
    BATCH_PAUSE_S,
    LOWER_PAUSE_S,
    RAISE_PAUSE_S,
    Because,
    Limits,
    decide,
)
from tallyweir.sinks.scaling.load import Observation, measure_load
from tallyweir.sinks.scaling.tests.observed_loads import (
    FREE,
    LOOK_S,
    NO_LIMITS,
    decide_all,
    recent,
    stands,
    steady,
)


@st.composite
def _histories(draw: st.DrawFn) -> list[Observation]:
    """Anything that counters can show: bursts, silence, a reset of Spark's figures."""
    steps = draw(
        st.lists(
            st.tuples(
                st.just(0) | st.integers(0, 200_000),
                st.floats(0, 1.5),
                st.floats(-0.2, 1.2),
                st.integers(0, 20),
                st.lists(st.floats(0.01, 100), max_size=2),
                st.just(0.0) | st.floats(0, 1),
            ),
            min_size=1,
            max_size=120,
        )
    )
    seen = []
    arrived = published = 0
    busy_s = steps_s = hot_key_s = 0.0
    for number, (more, share, busy, executors, full, hot) in enumerate(steps):
        arrived += more
        published = min(arrived, published + int(share * more))
        busy_s += busy * executors * LOOK_S
        # Of a batch now and then; the hottest key has a part of it.
        steps_s += LOOK_S if hot else 0
        hot_key_s += hot * LOOK_S
        seen.append(
            Observation(
                at_s=number * LOOK_S,
                arrived=arrived,
                published=published,
                busy_s=busy_s,
                executors=executors,
                full_batches_s=tuple(full),
                steps_s=steps_s,
                hot_key_s=hot_key_s,
            )
        )
    return seen


@settings(max_examples=200, deadline=None)
@given(
    seen=_histories(),
    least=st.integers(1, 8),
    wider=st.integers(0, 8),
    standing=st.integers(0, 40),
    limits=st.builds(
        Limits,
        tasks=st.integers(1, 40),
        connections=st.none() | st.integers(0, 40),
    ),
)
def test_nothing_is_ever_outside_of_the_bounds(
    seen: list[Observation], least: int, wider: int, standing: int, limits: Limits
) -> None:
    """Whatever was seen, stood before, or caps the number."""
    executors = Range(least=least, most=least + wider)
    batch = Range(least=1_000 * least, most=1_000 * (least + wider))
    decisions = decide_all(
        Bounds(executors=executors, batch_offsets=batch),
        seen,
        stands(standing, 1_000 * standing),
        limits,
    )
    for decision in decisions:
        found = decision.standing
        assert found.executors is not None
        assert found.batch_offsets is not None
        assert executors.least <= found.executors <= executors.most
        assert batch.least <= found.batch_offsets <= batch.most


@settings(max_examples=200, deadline=None)
@given(_histories())
def test_changes_keep_their_distance_under_any_input(seen: list[Observation]) -> None:
    """No flapping: a rise has its pause before it, and a fall a longer one."""
    standing = stands(4, 50_000)
    bounds = Bounds(
        executors=Range(least=1, most=16),
        batch_offsets=Range(least=10_000, most=1_000_000),
    )
    changed_s = batch_changed_s = 0.0
    for one, decision in zip(seen, decide_all(bounds, seen, standing), strict=True):
        now, was = decision.standing, standing
        assert now.executors is not None
        assert was.executors is not None
        if now.executors != was.executors:
            rises = now.executors > was.executors
            pause_s = RAISE_PAUSE_S if rises else LOWER_PAUSE_S
            assert one.at_s - changed_s >= pause_s
            assert now.executors <= 2 * was.executors
            changed_s = one.at_s
        if now.batch_offsets != was.batch_offsets:
            assert one.at_s - batch_changed_s >= BATCH_PAUSE_S
            batch_changed_s = one.at_s
        standing = now


@settings(max_examples=300, deadline=None)
@given(_histories(), st.integers(1, 16), st.integers(0, 10**9))
def test_more_backlog_never_means_fewer_executors(
    seen: list[Observation], standing: int, more: int
) -> None:
    """Of two pipelines that differ in nothing else."""
    kept = recent(seen)
    fuller = [*kept[:-1], replace(kept[-1], arrived=kept[-1].arrived + more)]
    changed_s = kept[-1].at_s - LOWER_PAUSE_S
    former = replace(stands(standing), executors_changed_at_s=changed_s)
    few = decide(FREE, NO_LIMITS, kept, former).standing.executors
    many = decide(FREE, NO_LIMITS, fuller, former).standing.executors
    assert few is not None
    assert many is not None
    assert few <= many


def test_a_pipeline_with_nothing_to_do_goes_down_to_the_least() -> None:
    """And no further, once that has been so for the pause."""
    seen = steady(arriving=0, done=0, busy=0, executors=6)
    decisions = decide_all(Bounds(executors=Range(least=2, most=8)), seen, stands(6))
    assert decisions[-1].standing.executors == 2
    changed = [one for one in decisions if one.standing.executors == 2]
    assert changed[0].because is Because.IDLE
    assert seen[decisions.index(changed[0])].at_s == LOWER_PAUSE_S


def test_a_fall_waits_until_fewer_would_have_been_enough_for_the_pause() -> None:
    """What was wanted two minutes ago may be wanted again."""
    busy = steady(seconds=200, arriving=4_000, done=4_000, busy=0.7, executors=4)
    idle = [replace(busy[-1], at_s=busy[-1].at_s + n * LOOK_S) for n in range(1, 25)]
    *_, last = decide_all(FREE, [*busy, *idle], stands(4))
    assert last.wanted == 0
    assert last.standing.executors == 4
    assert last.because is Because.COOLING_DOWN


def test_executors_that_are_busy_with_no_offsets_are_idle() -> None:
    """A batch that is staged again and again, or timers: nothing arrives for them."""
    seen = steady(arriving=0, done=0, busy=0.9, executors=3)
    decisions = decide_all(FREE, seen, stands(3))
    assert decisions[-1].standing.executors == 1
    assert decisions[-1].wanted == 0


def test_a_backlog_with_busy_executors_is_answered_within_the_short_pause() -> None:
    """By twice as many at most, for what many can do is not known yet."""
    seen = steady(arriving=5_000, done=1_000, busy=0.95, executors=1, backlog=50_000)
    decisions = decide_all(FREE, seen, stands(1))
    first = next(one for one in decisions if one.standing.executors != 1)
    assert first.standing.executors == 2
    assert seen[decisions.index(first)].at_s == RAISE_PAUSE_S
    assert first.because is Because.BACKLOG
    assert "5,000/s are expected" in first.reason


def test_more_executors_than_are_there_yet_are_not_asked_for() -> None:
    """A cluster that is full, or slow to start some, is given no longer list."""
    seen = steady(arriving=5_000, done=1_000, busy=0.95, executors=1, backlog=50_000)
    decision = decide_all(FREE, seen, stands(2))[-1]
    assert decision.standing.executors == 2
    assert decision.because is Because.STILL_STARTING


@pytest.mark.parametrize(
    ("done", "busy", "because"),
    [(0, 0.0, Because.STUCK), (1_000, 0.2, Because.NOT_BUSY)],
)
def test_a_backlog_that_executors_cannot_help_changes_nothing(
    done: float, busy: float, because: Because
) -> None:
    """Neither a pipeline that is stuck, nor one that waits for something else."""
    seen = steady(arriving=5_000, done=done, busy=busy, executors=4, backlog=50_000)
    decision = decide_all(FREE, seen, stands(4))[-1]
    assert decision.standing.executors == 4
    assert decision.because is because


@pytest.mark.parametrize(
    ("limits", "most", "because"),
    [
        (Limits(tasks=3), 3, Because.NO_MORE_TASKS),
        (Limits(tasks=99, connections=2), 2, Because.NO_MORE_CONNECTIONS),
        (Limits(tasks=99), 16, Because.AT_MOST),
    ],
)
def test_what_cannot_help_or_is_not_there_caps_the_number(
    limits: Limits, most: int, because: Because
) -> None:
    """A task for each executor, and a connection for each task."""
    seen = [
        replace(one, executors=most)
        for one in steady(
            arriving=90_000, done=1_000, busy=0.95, executors=1, backlog=10**7
        )
    ]
    seen = [replace(one, busy_s=one.at_s * most) for one in seen]
    decision = decide_all(FREE, seen, stands(most), limits)[-1]
    assert decision.standing.executors == most
    assert decision.because is because
    assert decision.wanted is not None
    assert decision.wanted > most


def test_a_cap_that_lowers_executors_says_so() -> None:
    """More are wanted, and yet they go: the reason is what caps them."""
    seen = steady(arriving=5_000, done=1_000, busy=0.95, executors=4, backlog=50_000)
    decisions = decide_all(FREE, seen, stands(4), Limits(tasks=2))
    lowered = next(one for one in decisions if one.standing.executors != 4)
    assert lowered.standing.executors == 2
    assert lowered.because is Because.NO_MORE_TASKS


def test_new_bounds_are_followed_at_once() -> None:
    """The operator decides, whatever was changed a moment ago."""
    seen = steady(seconds=5, arriving=0, done=0, busy=0, executors=9)
    former = replace(stands(9), executors_changed_at_s=5.0)
    decision = decide(Bounds(executors=Range(least=1, most=3)), NO_LIMITS, seen, former)
    assert decision.standing.executors == 3
    assert decision.because is Because.BOUNDS


def test_a_rising_rate_is_answered_before_it_is_there() -> None:
    """Executors take a while, so the trend is drawn out; a falling one is not."""
    rising = steady(seconds=60, arriving=1_000, done=1_000, busy=0.7, executors=1)
    rising = [
        replace(one, arrived=one.arrived + int(10 * one.at_s**2)) for one in rising
    ]
    load = measure_load(rising)
    assert load is not None
    assert load.expected_rate > load.arrival_rate
    falling = [
        replace(one, arrived=int(3_000 * one.at_s - 20 * one.at_s**2)) for one in rising
    ]
    load = measure_load(falling)
    assert load is not None
    assert load.expected_rate == load.arrival_rate


_BATCHES = Bounds(batch_offsets=Range(least=50_000, most=400_000))


def test_short_full_batches_of_a_long_backlog_are_made_larger() -> None:
    """What a batch costs by itself is spread over more; without a backlog it is not."""
    late = steady(
        arriving=1_000, done=1_000, busy=0.9, executors=0, backlog=10**5, full=(1.0,)
    )
    decisions = decide_all(_BATCHES, late, stands(None, 100_000))
    assert decisions[-1].standing.batch_offsets == 400_000
    changes = {one.standing.batch_offsets for one in decisions}
    assert changes == {100_000, 200_000, 400_000}
    fresh = steady(arriving=1_000, done=1_000, busy=0.9, executors=0, full=(1.0,))
    decisions = decide_all(_BATCHES, fresh, stands(None, 100_000))
    assert decisions[-1].standing.batch_offsets == 100_000


def test_batches_of_the_size_before_say_nothing_of_the_new_one() -> None:
    """Else one slow minute would halve the size again and again."""
    looks = steady(arriving=1_000, done=1_000, busy=0.9, executors=0, seconds=200)
    seen = [
        replace(one, full_batches_s=(40.0,) if one.at_s <= 60 else ()) for one in looks
    ]
    decisions = decide_all(_BATCHES, seen, stands(None, 400_000))
    sizes = {one.standing.batch_offsets for one in decisions}
    assert sizes == {400_000, 200_000}


def test_long_full_batches_are_made_smaller() -> None:
    """Results wait for the end of their batch."""
    late = steady(
        arriving=1_000, done=1_000, busy=0.9, executors=0, backlog=10**5, full=(40.0,)
    )
    decisions = decide_all(_BATCHES, late, stands(None, 300_000))
    assert {one.standing.batch_offsets for one in decisions} >= {300_000, 150_000}
    assert decisions[-1].standing.executors is None


@pytest.mark.parametrize(
    ("least", "most"), [(0, 4), (5, 4), (3, None), (None, 0), (-1, None)]
)
def test_bounds_that_are_none_are_refused(least: int | None, most: int | None) -> None:
    """With the code that docs/operations.md explains."""
    with pytest.raises(ConfigurationError) as caught:
        parse_range("executors", least=least, most=most, lowest=1)
    assert caught.value.code == "SCALING_BOUNDS"


def test_bounds_need_the_greatest_number_only() -> None:
    """The least has a default, which is never above it."""
    assert parse_range("executors", least=None, most=8, lowest=1) == Range(
        least=1, most=8
    )
    assert parse_range("offsets", least=None, most=500, lowest=20_000) == Range(
        least=500, most=500
    )
    assert parse_range("executors", least=None, most=None, lowest=1) is None
