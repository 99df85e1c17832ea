"""Which batches the driver stages itself, and what it makes of what goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from tallyweir.sinks.protocol.batch_run import BatchRun
from tallyweir.sinks.protocol.errors import FatalError, RetryableError
from tallyweir.sinks.protocol.identity import Attempt, BatchKey, Epoch, SparkBatchId
from tallyweir.sinks.protocol.identity import Sequence as SequenceNumber
from tallyweir.sinks.protocol.offsets import OffsetRange, TopicPartition
from tallyweir.sinks.protocol.ports import BatchPlan, StagedBatch
from tallyweir.sinks.protocol.votes import Vote
from tallyweir.spark_jobs.batches.driver_stage import SMALL_BATCH_BYTES, DriverStage
from tallyweir.spark_jobs.source.record_reader import (
    ReadRecords,
    RecordReader,
    TooManyBytesError,
)
from tallyweir.spark_jobs.task.stage_task import StageTask
from tallyweir.spark_jobs.task.task_worker import TaskWorker

_OFFSETS_MAX = 100


def _plan(*lengths: int, run: BatchRun | None = None) -> BatchPlan:
    return BatchPlan(
        key=BatchKey(epoch=Epoch(1), spark_batch_id=SparkBatchId(0)),
        ranges=[
            OffsetRange(
                topic_partition=TopicPartition("t", partition),
                from_offset=1_000,
                until_offset=1_000 + length,
            )
            for partition, length in enumerate(lengths)
        ],
        watermark_us=None,
        after_sequence=SequenceNumber(0),
        clocks={},
        planned_at_us=0,
        topic_ids={},
        run=run,
    )


class _Frame:
    """Stands for Spark's frame, its plan and what it has measured, all in one."""

    def __init__(self, rows: pa.Table | Exception, counted: int = 0) -> None:
        self._rows = rows
        self._counted = counted
        self.partitions: int | None = None
        self._jdf = self

    def coalesce(self, partitions: int) -> _Frame:
        self.partitions = partitions
        return self

    def toArrow(self) -> pa.Table:  # noqa: N802 - Spark's name
        if isinstance(self._rows, Exception):
            raise self._rows
        return self._rows

    def queryExecution(self) -> _Frame:  # noqa: N802 - Spark's name
        return self

    def observedMetrics(self) -> _Frame:  # noqa: N802 - Spark's name
        return self

    def apply(self, _: str) -> _Frame:
        return self

    def getLong(self, _: int) -> int:  # noqa: N802 - Spark's name
        return self._counted


class _Reader:
    """Stands for the reader: gives one answer, to whoever asks."""

    def __init__(self, answer: ReadRecords | Exception | None) -> None:
        self._answer = answer
        self.asked: list[Sequence[OffsetRange]] = []
        self.standing_by = False
        self.more: Sequence[OffsetRange] | None = None

    def await_more(self, _: float, *, offsets_max: int) -> Sequence[OffsetRange] | None:
        assert offsets_max == _OFFSETS_MAX
        return self.more

    def read(self, ranges: Sequence[OffsetRange]) -> ReadRecords | None:
        self.asked.append(ranges)
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    def stand_by(self) -> None:
        self.standing_by = True


class _Task:
    """Stands for the task: votes for nothing, or fails."""

    def __init__(self, failure: Exception | None = None) -> None:
        self._failure = failure
        self.rows: list[int] = []
        self.moments: list[str] = []

    def stage(
        self, batches: Sequence[pa.RecordBatch], number: int, _: TaskWorker
    ) -> Vote:
        if self._failure is not None:
            raise self._failure
        self.moments.append("staged")
        self.rows.append(sum(batch.num_rows for batch in batches))
        return Vote(attempt=Attempt(number), partitions={}, staged={}, outputs={})


def _stage(
    stage: DriverStage, frame: _Frame, task: _Task, plan: BatchPlan
) -> StagedBatch | None:
    return stage.stage(
        lambda: cast(DataFrame, frame),
        plan,
        cast(StageTask, task),
        on_read=lambda: task.moments.append("read"),
    )


def _values(count: int, length: int) -> pa.Table:
    return pa.table({"value": pa.array([b"x" * length] * count, pa.binary())})


def _driver_stage(
    offsets_max: int = _OFFSETS_MAX, reader: _Reader | None = None
) -> DriverStage:
    return DriverStage(
        offsets_max=offsets_max, holder=None, reader=cast(RecordReader | None, reader)
    )


@pytest.mark.parametrize(
    ("lengths", "taken"), [((50, 50), "small"), ((50, 51), "large"), ((0, 0), "small")]
)
def test_a_batch_is_small_by_the_offsets_of_all_its_partitions(
    lengths: tuple[int, ...], taken: str
) -> None:
    """The bound itself is small."""
    assert (taken == "small") is _driver_stage().takes(_plan(*lengths))


def test_a_bound_of_zero_leaves_every_batch_to_spark() -> None:
    """One offset is too many then."""
    assert not _driver_stage(0).takes(_plan(1))


def test_a_batch_run_is_left_to_spark() -> None:
    """However few records it has: its sources have no bound on what a row holds."""
    run = cast(BatchRun, object())
    assert not _driver_stage().takes(_plan(1, run=run))


def test_large_records_make_a_batch_large() -> None:
    """Records are taken to be as large as those of the batch before."""
    stage = _driver_stage()
    assert stage.takes(_plan(100))
    _stage(stage, _Frame(_values(2, SMALL_BATCH_BYTES // 50)), _Task(), _plan(2))
    assert stage.takes(_plan(49))
    assert not stage.takes(_plan(51))


def test_rows_that_spark_does_not_hand_over_are_left_to_tasks() -> None:
    """What was too much is not tried again until batches are less than half of it."""
    refusal = PySparkException(
        "Total size is bigger than spark.driver.maxResultSize (1024.0 MiB)"
    )
    stage, task = _driver_stage(), _Task()
    assert _stage(stage, _Frame(refusal), task, _plan(60)) is None
    assert [] == task.rows
    assert not stage.takes(_plan(60))
    assert stage.takes(_plan(30))


def test_a_job_that_fails_otherwise_fails_the_batch() -> None:
    """The bridge says what Spark said."""
    failure = PySparkException("Connection to broker lost")
    with pytest.raises(PySparkException) as caught:
        _stage(_driver_stage(), _Frame(failure), _Task(), _plan(1))
    assert caught.value is failure


def test_what_was_read_is_what_spark_has_counted() -> None:
    """And not the rows that came: a row that is lost on the way must show."""
    frame, task = _Frame(_values(3, 1), counted=4), _Task()
    staged = _stage(_driver_stage(), frame, task, _plan(4))
    assert staged is not None
    assert (4, [3], 1) == (staged.records_read, task.rows, frame.partitions)


def test_records_as_they_were_read_are_not_taken_from_spark() -> None:
    """Their number is the reader's, whatever the number of rows."""
    reader = _Reader(ReadRecords(rows=_values(3, 1), records=4))
    frame, task, plan = _Frame(AssertionError("asked")), _Task(), _plan(4)
    staged = _stage(_driver_stage(reader=reader), frame, task, plan)
    assert staged is not None
    assert (4, [3], [plan.ranges]) == (staged.records_read, task.rows, reader.asked)


@pytest.mark.parametrize("reader", [True, False])
def test_it_is_told_that_all_is_read_before_anything_is_staged(*, reader: bool) -> None:
    """Who is told asks the broker meanwhile whose records these were."""
    rows, task = _values(1, 1), _Task()
    read = _Reader(ReadRecords(rows=rows, records=1)) if reader else None
    _stage(_driver_stage(reader=read), _Frame(rows, counted=1), task, _plan(1))
    assert ["read", "staged"] == task.moments


def test_records_that_do_not_come_are_left_to_tasks() -> None:
    """Of this batch only: the next one is tried again."""
    stage, task = _driver_stage(reader=_Reader(None)), _Task()
    assert _stage(stage, _Frame(_values(1, 1)), task, _plan(60)) is None
    assert [] == task.moments
    assert stage.takes(_plan(60))


def test_records_that_are_too_large_for_the_driver_are_left_to_tasks() -> None:
    """And so are the next ones, as when Spark hands too much over."""
    stage, task = _driver_stage(reader=_Reader(TooManyBytesError())), _Task()
    assert _stage(stage, _Frame(_values(1, 1)), task, _plan(60)) is None
    assert [] == task.moments
    assert not stage.takes(_plan(60))
    assert stage.takes(_plan(30))


def test_what_comes_next_is_the_readers_to_say() -> None:
    """Without one, or with nobody who reads ahead, Spark says it."""
    assert _driver_stage().await_more(1.0) is None
    reader = _Reader(None)
    stage = _driver_stage(reader=reader)
    for more in [_plan(3).ranges, [], None]:
        reader.more = more
        assert stage.await_more(1.0) == more


def test_a_batch_of_large_records_is_none_of_the_drivers_own() -> None:
    """Nobody else could stage it then: Spark knows nothing of it."""
    rows = _values(2, SMALL_BATCH_BYTES // 50)
    reader = _Reader(ReadRecords(rows=rows, records=2))
    stage = _driver_stage(reader=reader)
    _stage(stage, _Frame(rows), _Task(), _plan(2))
    reader.more = _plan(51).ranges
    assert stage.await_more(1.0) is None
    reader.more = _plan(49).ranges
    assert stage.await_more(1.0) == reader.more


@pytest.mark.parametrize("leave", [DriverStage.stand_by, DriverStage.close])
def test_nothing_is_read_ahead_for_nobody(leave: Callable[[DriverStage], None]) -> None:
    """While tasks stage, or when the claim has ended."""
    reader = _Reader(None)
    leave(_driver_stage(reader=reader))
    assert reader.standing_by


def test_attempts_are_none_of_sparks() -> None:
    """Spark counts its own from 0, so every other one is below that."""
    stage, task = _driver_stage(), _Task()
    votes: list[Vote] = []
    for _ in range(3):
        staged = _stage(stage, _Frame(_values(1, 1)), task, _plan(1))
        assert staged is not None
        votes += staged.votes
    attempts = [vote.attempt for vote in votes]
    assert 3 == len(set(attempts))
    assert all(attempt < 0 for attempt in attempts)


def test_an_error_of_ours_stays_what_it_is() -> None:
    """A task of Spark would have stated it instead of its vote."""
    error = FatalError("EVENT_DOUBLED", saw="s", why="w", fix="f")
    with pytest.raises(FatalError) as caught:
        _stage(_driver_stage(), _Frame(_values(1, 1)), _Task(error), _plan(1))
    assert caught.value is error


def test_any_other_error_fails_the_batch_without_its_words() -> None:
    """As a failed job of Spark does, the driver starts over; words may quote data."""
    error: Any = ValueError("secret payload")
    with pytest.raises(RetryableError) as caught:
        _stage(_driver_stage(), _Frame(_values(1, 1)), _Task(error), _plan(1))
    assert "DRIVER_STAGE_FAILED" == caught.value.code
    assert "ValueError" in caught.value.saw
    assert "secret" not in str(caught.value)
