"""Each cause is named from measures that it leaves, and from none that it does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tallyweir.sinks.diagnosis.batch_time import (
    BETWEEN,
    MeasuredBatch,
    time_by_part,
)
from tallyweir.sinks.diagnosis.bottleneck import (
    BATCHES_MIN,
    REMEDY_OF_PART,
    Bottleneck,
    Cause,
    ServerFacts,
    find_bottleneck,
    rank_causes,
)
from tallyweir.sinks.protocol.measures import HotKeys, Measures, StepMeasure

#: Of a plain batch, which staging takes most of the time of, evenly.
_SECONDS = {
    "between": 0.05,
    "plan": 0.01,
    "stage": 1.0,
    "wait": 0.04,
    "publish": 0.5,
    "publish_lock": 0.01,
    "publish_ledger": 0.04,
    "publish_rows": 0.4,
    "commit_before": 0.01,
}
_STEPS = {
    "read": 0.2,
    "decode": 0.2,
    "validate": 0.1,
    "deduplicate": 0.15,
    "make_rows": 0.05,
    "copy": 0.2,
}
_BACKLOG = ServerFacts(lag=1_000_000, partitions=4)


def _step(seconds: float, *, tasks: int = 2, uneven: float = 1.0) -> StepMeasure:
    return StepMeasure(
        seconds=seconds * tasks / uneven, seconds_max=seconds, tasks=tasks
    )


def _batches(
    *,
    seconds: Mapping[str, float] | None = None,
    steps: Mapping[str, StepMeasure] | None = None,
    tasks: tuple[float, ...] = (0.9, 0.9),
    read: int = 50_000,
    dead: int = 0,
) -> list[MeasuredBatch]:
    measures = Measures(
        steps={n: _step(s) for n, s in _STEPS.items()} | dict(steps or {}),
        seconds={**_SECONDS, **(seconds or {})},
        cpu_seconds={"tasks": 1.0},
        task_seconds=tasks,
        slots=2,
    )
    return [
        MeasuredBatch(
            sequence=number,
            read=read,
            committed=read - dead,
            dead=dead,
            measures=measures,
        )
        for number in range(BATCHES_MIN)
    ]


def _with_slots(batches: list[MeasuredBatch], slots: int) -> list[MeasuredBatch]:
    return [
        replace(one, measures=replace(one.measures, slots=slots)) for one in batches
    ]


def _found(
    batches: list[MeasuredBatch], server: ServerFacts = _BACKLOG
) -> tuple[Cause, float]:
    found = find_bottleneck(batches, server)
    assert found is not None
    assert 0 < found.share <= 1
    assert found.saw.endswith(".")
    assert found.remedy.endswith(".")
    return found.cause, found.share


def test_all_that_keeps_a_pipeline_is_ranked() -> None:
    """What stops it, then what explains most of the time, and its greatest part."""
    slow = {"keys": _step(5.0, tasks=4, uneven=3.5)}
    batches = _with_slots(_batches(seconds={"wait": 5.1}, steps=slow, dead=30_000), 4)
    waits = replace(_BACKLOG, lock_wait_s=20, lock_told="Process 7 holds it.")
    assert [one.cause for one in rank_causes(batches, waits)] == [
        Cause.LOCK,
        Cause.DEAD_LETTERS,
        Cause.SKEW,
        Cause.SLOW_PYTHON,
        Cause.STEP,
    ]


def test_slow_python_of_a_transform_is_named() -> None:
    """Its time is that of the workers beneath the tasks, not of reading."""
    slow = {"transform": StepMeasure(seconds=16.0, tasks=2), "read": _step(8.2)}
    cause, share = _found(_batches(seconds={"stage": 9.0}, steps=slow))
    assert cause is Cause.SLOW_PYTHON
    assert share > 0.8


def test_slow_functions_on_keys_are_named() -> None:
    """Phase 2b runs while the loop waits for it."""
    slow = {"keys": _step(5.0)}
    cause, share = _found(_batches(seconds={"wait": 5.1}, steps=slow))
    assert cause is Cause.SLOW_PYTHON
    assert share > 0.7


def test_a_skewed_key_is_told_from_slow_python() -> None:
    """One task works on its functions while the others have long ended."""
    slow = {"keys": _step(5.0, tasks=4, uneven=3.5)}
    batches = _batches(seconds={"wait": 5.1}, steps=slow)
    cause, _ = _found(_with_slots(batches, 4))
    assert cause is Cause.SKEW


def test_a_skewed_partition_is_named() -> None:
    """One of the tasks of phase one takes almost all of its time."""
    cause, _ = _found(_batches(tasks=(0.9, 0.05)))
    assert cause is Cause.SKEW


def test_a_partition_that_has_all_that_waits_is_a_skew() -> None:
    """The tasks of the others have nothing to read, so nobody measures them."""
    batches = _batches(tasks=(0.9,))
    assert _found(batches)[0] is Cause.SKEW
    assert _found(batches, replace(_BACKLOG, lag=10))[0] is not Cause.SKEW


def test_tasks_that_take_turns_may_differ() -> None:
    """While one of them takes long, the others run one after the other."""
    batches = _batches(tasks=(0.9, *[0.2] * 5))
    assert _found(batches)[0] is not Cause.SKEW


def test_a_batch_that_the_driver_stages_has_no_work_to_share() -> None:
    """There is one task, however many could run."""
    batches = [
        replace(one, measures=replace(one.measures, cpu_seconds={"driver": 1.0}))
        for one in _with_slots(_batches(tasks=(0.9,)), 8)
    ]
    assert _found(batches)[0] is Cause.STEP
    assert _found(batches, replace(_BACKLOG, partitions=1))[0] is Cause.STEP


def test_the_hottest_key_is_told_with_the_skew() -> None:
    """As it is kept: its hash, unless the pipeline shows keys."""
    hot = {"totals": HotKeys(events=100, keys={"#ab": 70, "#cd": 10})}
    batches = [
        replace(one, measures=one.measures + Measures(hot_keys=hot))
        for one in _batches(tasks=(0.9, 0.05))
    ]
    found = find_bottleneck(batches, _BACKLOG)
    assert found is not None
    assert found.saw.endswith("of the events of totals, 70% are of the key #ab.")


def test_a_slow_disk_is_named() -> None:
    """Staging waits for a batch whose COMMIT takes long."""
    slow = {"wait": 2.0, "publish": 0.4, "commit_before": 1.6}
    cause, share = _found(_batches(seconds=slow))
    assert cause is Cause.SLOW_DISK
    assert share > 0.4


def test_a_disk_that_hung_once_is_not_slow() -> None:
    """Its COMMIT in the middle is as fast as ever."""
    batches = _batches()
    hung = {**batches[1].measures.seconds, "wait": 9.0, "commit_before": 9.0}
    batches[1] = replace(
        batches[1], measures=replace(batches[1].measures, seconds=hung)
    )
    assert _found(batches)[0] is not Cause.SLOW_DISK


def test_a_start_is_not_what_keeps_a_pipeline() -> None:
    """The first batch of a driver waits for workers and code that begin."""
    slow = {"wait": 2.0, "publish": 0.4, "commit_before": 1.6}
    batches = _batches(seconds=slow, read=300)
    first = {**batches[0].measures.seconds, "stage": 60.0}
    del first["commit_before"]
    batches[0] = replace(
        batches[0], measures=replace(batches[0].measures, seconds=first)
    )
    cause, share = _found(batches)
    assert cause is Cause.SLOW_DISK
    assert share > 0.4


def test_a_held_lock_is_named_with_its_holder() -> None:
    """A driver that waits measures nothing; the server shows it at once."""
    waits = replace(_BACKLOG, lock_wait_s=20, lock_told="Process 7 holds it.")
    found = find_bottleneck(_batches(), waits)
    assert found is not None
    assert (found.cause, found.saw) == (Cause.LOCK, "Process 7 holds it.")
    assert found.share > 0.9


def test_a_held_lock_is_named_before_any_batch() -> None:
    """It may be the reason that there is none."""
    waits = replace(_BACKLOG, lock_wait_s=20, lock_told="Process 7 holds it.")
    assert _found([], waits)[0] is Cause.LOCK


def test_a_lock_of_a_prepared_transaction_is_a_branch_in_doubt() -> None:
    """No session can be ended to get it back."""
    waits = replace(_BACKLOG, lock_wait_s=9, lock_told="…", lock_is_prepared=True)
    assert _found(_batches(), waits)[0] is Cause.IN_DOUBT


def test_a_branch_in_doubt_is_named() -> None:
    """Decided, and not committed for longer than moments."""
    assert _found(_batches(), replace(_BACKLOG, in_doubt_s=30))[0] is Cause.IN_DOUBT


def test_a_slow_source_is_no_trouble() -> None:
    """Nothing waits in Kafka, and the loop waits for events."""
    idle = _batches(seconds={"between": 8.0})
    found = find_bottleneck(idle, ServerFacts(lag=0, partitions=4))
    assert found is not None
    assert found.cause is Cause.SOURCE
    assert found.share > 0.8
    assert not found.is_trouble


def test_a_pipeline_that_has_caught_up_waits_for_events() -> None:
    """Whatever took most of the time while there was something to read."""
    caught_up = ServerFacts(lag=0, partitions=4, since_commit_s=60)
    assert _found(_batches(dead=0), caught_up)[0] is Cause.SOURCE
    assert _found(_batches(), replace(caught_up, lag=10**6))[0] is Cause.STEP


def test_small_batches_are_named_where_more_waits() -> None:
    """What every batch costs takes most of the time."""
    small = {"between": 0.5, "stage": 1.8, "wait": 0.1}
    assert _found(_batches(seconds=small, read=300))[0] is Cause.SMALL_BATCHES


def test_small_batches_of_a_slow_source_are_not() -> None:
    """There is nothing that a batch could take more of."""
    small = _batches(seconds={"between": 3.0}, read=30)
    assert _found(small, ServerFacts(lag=10, partitions=4))[0] is Cause.SOURCE


def test_too_few_partitions_are_named() -> None:
    """Tasks that could run have no partition to read."""
    batches = _with_slots(_batches(tasks=(0.9,)), 8)
    cause, _ = _found(batches, replace(_BACKLOG, partitions=1))
    assert cause is Cause.FEW_PARTITIONS


def test_vacuum_that_is_held_back_is_named() -> None:
    """Rows that are dead stay, because somebody might see them."""
    bloated = replace(
        _BACKLOG,
        xmin_s=900,
        xmin_holder="process 7",
        dead_rows=90_000,
        live_rows=10_000,
    )
    slow = {"wait": 3.0, "publish": 3.2, "publish_windows": 3.0}
    assert _found(_batches(seconds=slow), bloated)[0] is Cause.VACUUM


@pytest.mark.parametrize(
    "facts", [{"xmin_s": 10.0}, {"dead_rows": 100}, {"live_rows": 10_000_000}]
)
def test_vacuum_is_not_blamed_for_what_is_usual(facts: dict[str, float]) -> None:
    """A young snapshot, few dead rows, or a small part of all."""
    bloated = ServerFacts(
        lag=10**6, partitions=4, xmin_s=900, dead_rows=90_000, live_rows=10_000
    )
    usual = replace(bloated, **facts)  # type: ignore[arg-type]  # one name each
    assert _found(_batches(), usual)[0] is not Cause.VACUUM


def test_dead_rows_are_not_blamed_for_slow_python() -> None:
    """Publishing goes through them, but nobody waits for it."""
    bloated = replace(_BACKLOG, xmin_s=900, dead_rows=90_000, live_rows=10_000)
    slow = {"transform": StepMeasure(seconds=16.0, tasks=2), "read": _step(8.2)}
    batches = _batches(seconds={"stage": 9.0}, steps=slow)
    assert _found(batches, bloated)[0] is Cause.SLOW_PYTHON


def test_a_few_dead_letters_are_no_storm() -> None:
    """However little is read."""
    assert _found(_batches(read=5, dead=3))[0] is not Cause.DEAD_LETTERS


def test_a_storm_of_dead_letters_is_named() -> None:
    """Its share is of what was read."""
    assert _found(_batches(dead=30_000)) == (Cause.DEAD_LETTERS, 0.6)


def test_a_plain_pipeline_is_told_its_greatest_part() -> None:
    """With what helps there."""
    found = find_bottleneck(_batches(steps={"decode": _step(0.4)}), _BACKLOG)
    assert found is not None
    assert (found.cause, found.part) == (Cause.STEP, "decode")
    assert found.remedy == REMEDY_OF_PART["decode"]


def test_two_batches_say_too_little() -> None:
    """The first of a start warms up."""
    assert find_bottleneck(_batches()[:2], _BACKLOG) is None
    assert _none_without_time() is None


def _none_without_time() -> Bottleneck | None:
    batches = [replace(one, measures=Measures()) for one in _batches()]
    return find_bottleneck(batches, _BACKLOG)


@pytest.mark.parametrize(
    "batches",
    [
        _batches(),
        _batches(steps={"transform": StepMeasure(seconds=9.0), "keys": _step(3.0)}),
        _batches(seconds={"stage": 0.1, "wait": 7.0}),
    ],
)
def test_the_parts_of_a_batch_add_up_to_it(batches: list[MeasuredBatch]) -> None:
    """Whatever overlaps, nothing counts twice; and each part has a remedy."""
    measures = batches[0].measures
    parts = time_by_part(measures)
    of_loop = (BETWEEN, "plan", "stage", "wait")
    loop_s = sum(measures.seconds.get(name, 0.0) for name in of_loop)
    assert sum(parts.values()) == pytest.approx(loop_s)
    assert min(parts.values()) >= 0
    assert parts.keys() <= REMEDY_OF_PART.keys()
