"""A scaler over a fake cluster and a fake record: what it does when, and what not."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

import pytest
import structlog
from structlog.testing import capture_logs

from tallyweir.sinks.postgres.ledger.scaling_record import LastDecided, ScalingRecord
from tallyweir.sinks.protocol.errors import RetryableError
from tallyweir.sinks.protocol.identity import Epoch
from tallyweir.sinks.protocol.in_doubt import EpochClaim
from tallyweir.sinks.protocol.measures import (
    NOTHING_MEASURED,
    HotKeys,
    Measures,
    StepMeasure,
)
from tallyweir.sinks.protocol.offsets import OffsetRange, TopicPartition
from tallyweir.sinks.scaling.bounds import NOT_SCALED, Bounds, Range
from tallyweir.sinks.scaling.decision import RAISE_PAUSE_S, Because, ScalingDecision
from tallyweir.spark_jobs.batches.batch_report import BatchReport
from tallyweir.spark_jobs.scaling.executor_pool import ExecutorPool, PoolState
from tallyweir.spark_jobs.scaling.scaler import Scaler, tasks_max

_PLACE = TopicPartition("events", 0)
_LOOK_S = 5.0
_TO_4 = Bounds(executors=Range(least=1, most=4))


@dataclass
class _Record:
    """The tables of one pipeline."""

    bounds: Bounds = NOT_SCALED
    last: LastDecided = field(
        default_factory=lambda: LastDecided(executors=None, batch_offsets=None)
    )
    decisions: list[ScalingDecision] = field(default_factory=list)
    failure: RetryableError | None = None

    def read_bounds(self) -> Bounds:
        if self.failure is not None:
            raise self.failure
        return self.bounds

    def read_last(self) -> LastDecided:
        return self.last

    def record(self, _claim: EpochClaim, decision: ScalingDecision) -> None:
        self.decisions.append(decision)


@dataclass
class _Pool:
    """A cluster that starts what it is asked for by the next look."""

    there: int = 0
    asked: list[int] = field(default_factory=list)
    busy_s: float = 0.0

    def look(self) -> PoolState:
        return PoolState(executors=self.there, cores=1, busy_s=self.busy_s)

    def set_total(self, total: int) -> None:
        self.asked.append(total)
        self.there = total


class _Scene:
    """A scaler, what it works on, and a clock that only moves by hand."""

    def __init__(self, record: _Record, pool: _Pool | None) -> None:
        self.record = record
        self.pool = pool
        self.now_s = 0.0
        self.arrived = 0
        #: Of every batch.
        self.measures = NOTHING_MEASURED
        self.scaler = Scaler(
            cast("ScalingRecord", record),
            dsns={},
            pool=cast("ExecutorPool | None", pool),
            batch_offsets=1_000,
            shuffles=True,
            keyed=["totals"],
            log=structlog.get_logger(),
            clock=lambda: self.now_s,
        )
        self.scaler.start()
        self.scaler.begin(_claim(), {_PLACE: 0})

    def pass_seconds(self, seconds: float, *, arriving: int = 0) -> None:
        """Let time pass, with everybody busy and nothing published but a little."""
        for _ in range(int(seconds / _LOOK_S)):
            self.now_s += _LOOK_S
            self.arrived += int(arriving * _LOOK_S)
            if self.pool is not None and arriving:
                self.pool.busy_s += self.pool.there * _LOOK_S
            if arriving:
                self.publish(int(self.now_s * 10))
            self.scaler.look({_PLACE: self.arrived})

    def publish(self, until: int, *, read: int = 1, seconds: float = 1.0) -> None:
        report = _report(until - read, until, seconds, self.measures)
        self.scaler.note_published(report)


def _claim() -> EpochClaim:
    return EpochClaim(
        installation="i", pipeline_number=1, epoch=Epoch(1), nonce="0123456789abcdef"
    )


def _report(begin: int, end: int, seconds: float, measures: Measures) -> BatchReport:
    """Return what a scaler looks at of a report."""
    covered = OffsetRange(topic_partition=_PLACE, from_offset=begin, until_offset=end)
    plan = SimpleNamespace(ranges=(covered,))
    result = SimpleNamespace(tally=SimpleNamespace(measures=measures))
    report = SimpleNamespace(plan=plan, seconds=seconds, result=result)
    return cast("BatchReport", report)


@pytest.fixture(autouse=True)
def free_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Databases with room for all."""
    monkeypatch.setattr(
        "tallyweir.spark_jobs.scaling.scaler.read_free_connections", lambda *_: 1_000
    )


def test_without_bounds_nothing_is_asked_for_or_written_down() -> None:
    """A cluster may belong to others as well; its operator has to say."""
    scene = _Scene(_Record(), _Pool(there=3))
    scene.pass_seconds(600, arriving=5_000)
    assert scene.pool is not None
    assert scene.pool.asked == []
    assert scene.record.decisions == []
    assert not scene.scaler.wants_new_query


def test_a_start_asks_for_the_least_or_what_the_driver_before_it_had() -> None:
    """Spark would begin with all that the cluster has."""
    pool = _Pool(there=9)
    _Scene(_Record(bounds=_TO_4), pool)
    assert pool.asked == [1]
    pool = _Pool(there=9)
    last = LastDecided(executors=3, batch_offsets=400)
    bounds = Bounds(
        executors=Range(least=1, most=4), batch_offsets=Range(least=1, most=500)
    )
    scene = _Scene(_Record(bounds=bounds, last=last), pool)
    assert pool.asked == [3]
    assert scene.scaler.batch_offsets == 400


def test_a_backlog_raises_executors_and_quiet_lowers_them_again() -> None:
    """Each change is written down before it is asked for, and asked for once."""
    scene = _Scene(_Record(bounds=_TO_4), _Pool())
    scene.pass_seconds(4 * RAISE_PAUSE_S, arriving=5_000)
    assert scene.pool is not None
    assert scene.pool.asked == [1, 2, 4]
    scene.publish(scene.arrived)
    scene.pass_seconds(600)
    assert scene.pool.asked == [1, 2, 4, 3, 1]
    changes = [
        (one.former.executors, one.standing.executors)
        for one in scene.record.decisions
        if one.former.executors != one.standing.executors
    ]
    assert changes == [(1, 2), (2, 4), (4, 3), (3, 1)]
    reasons = {one.because for one in scene.record.decisions}
    assert {Because.BACKLOG, Because.AT_MOST, Because.IDLE} <= reasons


def test_a_backlog_of_one_key_raises_no_executors() -> None:
    """One task does it; what the keys of windows have is spread over all."""
    hot = HotKeys(events=100, keys={"a": 95})
    keys = {"keys": StepMeasure(seconds=4.5), "copy": StepMeasure(seconds=0.5)}
    scene = _Scene(_Record(bounds=_TO_4), _Pool())
    scene.measures = Measures(steps=keys, hot_keys={"totals": hot})
    scene.pass_seconds(4 * RAISE_PAUSE_S, arriving=5_000)
    assert scene.pool is not None
    assert scene.pool.asked == [1]
    last = scene.record.decisions[-1]
    assert last.because is Because.HOT_KEY
    assert last.load is not None
    assert last.load.hot_key_share == pytest.approx(0.95 * 0.9)
    scene = _Scene(_Record(bounds=_TO_4), _Pool())
    scene.measures = Measures(steps=keys, hot_keys={"by_hour": hot})
    scene.pass_seconds(4 * RAISE_PAUSE_S, arriving=5_000)
    assert scene.pool is not None
    assert scene.pool.asked == [1, 2, 4]


def test_a_decision_that_only_repeats_the_one_before_it_is_not_written_down() -> None:
    """Else a quiet pipeline would fill the table."""
    scene = _Scene(_Record(bounds=_TO_4), _Pool())
    scene.pass_seconds(1_200)
    assert len(scene.record.decisions) <= 3


def test_executors_that_the_cluster_did_not_give_are_asked_for_again() -> None:
    """A master that was away has forgotten, and idle ones go only one by one."""
    scene = _Scene(_Record(bounds=_TO_4), _Pool())
    assert scene.pool is not None
    scene.pool.there = 3
    scene.pass_seconds(_LOOK_S)
    assert scene.pool.asked == [1, 1]
    scene.pass_seconds(_LOOK_S)
    assert scene.pool.asked == [1, 1]


def test_a_home_that_is_away_changes_nothing_and_is_told_once() -> None:
    """The pipeline has its own way to wait for it."""
    scene = _Scene(_Record(bounds=_TO_4), _Pool())
    scene.record.failure = RetryableError("AWAY", saw="away", why="", fix="")
    with capture_logs() as told:
        scene.pass_seconds(60, arriving=5_000)
    assert [one["event"] for one in told] == ["not scaled"]
    scene.record.failure = None
    scene.pass_seconds(60, arriving=5_000)
    assert scene.record.decisions


def test_in_one_process_only_the_batch_size_is_steered() -> None:
    """There are no executors; a new size ends the query, once."""
    bounds = Bounds(
        executors=Range(least=1, most=4), batch_offsets=Range(least=100, most=4_000)
    )
    scene = _Scene(_Record(bounds=bounds), None)
    assert scene.scaler.batch_offsets == 1_000
    scene.arrived = 10**7
    for number in range(1, 21):
        scene.publish(number * 1_000, read=1_000)
        scene.pass_seconds(_LOOK_S)
    assert scene.scaler.batch_offsets == 2_000
    assert scene.scaler.wants_new_query
    assert scene.scaler.begin(_claim(), {_PLACE: 20_000}) == 2_000
    assert not scene.scaler.wants_new_query
    assert all(one.standing.executors is None for one in scene.record.decisions)


@pytest.mark.parametrize(
    ("partitions", "offsets", "tasks"),
    [(4, 250_000, 4), (4, 500_001, 8), (1, 1_000_000, 8), (12, 50_000, 12)],
)
def test_tasks_of_a_batch_are_parts_of_its_partitions(
    partitions: int, offsets: int, tasks: int
) -> None:
    """As Spark's Kafka source divides them."""
    assert tasks_max(partitions, offsets) == tasks
