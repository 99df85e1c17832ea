"""Stages small batches in the driver's process, by the task that Spark would run.

A batch of some hundred records spends most of its time on starting tasks: Spark hands
the task to Python workers, which ask for their IDs and hand their votes back. So the
driver takes the rows of such a batch and runs the same task on them. Staging, vote and
everything after them are the same; only the place differs.

If Spark computes columns, the driver takes the rows from Spark. Otherwise it reads the
records itself.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tallyweir.sinks.protocol.errors import RetryableError, TallyweirError
from tallyweir.sinks.protocol.measures import Measures, StepMeasure
from tallyweir.sinks.protocol.offsets import OffsetRange
from tallyweir.sinks.protocol.ports import BatchPlan, StagedBatch
from tallyweir.sinks.protocol.votes import Vote
from tallyweir.spark_jobs.engine.spark_failure import SPARK_FAILURES
from tallyweir.spark_jobs.source.record_reader import (
    ReadRecords,
    RecordReader,
    TooManyBytesError,
)
from tallyweir.spark_jobs.task.stage_task import StageTask
from tallyweir.spark_jobs.task.task_worker import AnswersClaims, TaskWorker

#: Most bytes of a batch's rows that the driver holds, as estimated before it reads
#: them.
SMALL_BATCH_BYTES = 64 * 1024 * 1024

#: Spark's count of the records that it has read for a batch.
_RECORDS = "tallyweir_records"
#: The setting that limits the bytes that Spark sends to a driver.
_TOO_LARGE = "spark.driver.maxResultSize"


class DriverStage:
    """Stages small batches, one after another, for one claim of an epoch.

    Args:
        offsets_max: Most offsets of a small batch.
        holder: Holder of the IDs; None if the pipeline does not deduplicate by ID.
        reader: Reader of the stream's records, if tasks need them as they were read.
    """

    def __init__(
        self,
        *,
        offsets_max: int,
        holder: AnswersClaims | None,
        reader: RecordReader | None,
    ) -> None:
        self._offsets_max = offsets_max
        self._reader = reader
        self._worker = TaskWorker(holder)
        # Spark counts its attempts upwards from 0, so these numbers never collide with
        # them.
        self._attempts = itertools.count(-1, -1)
        #: Bytes of a record, by the last batch: the size is unknown before it is read.
        self._record_bytes = 0.0

    def takes(self, plan: BatchPlan) -> bool:
        """Return whether a batch is small; a batch run never is, as it is no stream."""
        return plan.run is None and self._is_small(plan.offsets)

    def counted(self, raw: DataFrame) -> DataFrame:
        """Let Spark count the records where it reads them."""
        return raw.observe(_RECORDS, F.count(F.lit(1)).alias(_RECORDS))

    def stage(
        self,
        events: Callable[[], DataFrame],
        plan: BatchPlan,
        task: StageTask,
        *,
        on_read: Callable[[], None],
    ) -> StagedBatch | None:
        """Stage a small batch.

        Args:
            events: Makes the frame of events to stage, with records counted by
                ``counted``.
            plan: Plan of the batch.
            task: The task that Spark would run on them.
            on_read: Called when all records have been read.

        Returns:
            The staged batch. None if the rows are too large for a driver or do not
            arrive; then nothing is staged.

        Raises:
            TallyweirError: The error that a task would return instead of a vote.

        Crash:
            As in a task, the staged rows are not voted for, and are never moved.
        """
        began = time.perf_counter()
        try:
            if self._reader is None:
                read: ReadRecords | None = _collect(events())
            else:
                read = self._reader.read(plan.ranges)
        except TooManyBytesError:
            self._record_bytes = 2 * SMALL_BATCH_BYTES / plan.offsets
            return None
        if read is None:
            return None
        rows = read.rows
        read_s = time.perf_counter() - began
        on_read()
        if rows.num_rows:
            self._record_bytes = rows.nbytes / rows.num_rows
        return StagedBatch(
            votes=[self._run(task, rows)],
            records_read=read.records,
            # The task has its input already, so reading was measured here.
            measures=Measures(
                steps={"read": StepMeasure(seconds=read_s, seconds_max=read_s)}
            ),
        )

    def _is_small(self, offsets: int) -> bool:
        return (
            offsets <= self._offsets_max
            and offsets * self._record_bytes <= SMALL_BATCH_BYTES
        )

    def _run(self, task: StageTask, rows: pa.Table) -> Vote:
        try:
            return task.stage(rows.to_batches(), next(self._attempts), self._worker)
        except TallyweirError:
            raise
        except Exception as error:
            # Spark would report a failed job. The text of the error may quote a
            # payload.
            raise stage_failed(
                f"The driver could not stage a batch ({type(error).__name__})."
            ) from error

    def await_more(self, timeout_s: float) -> Sequence[OffsetRange] | None:
        """Wait for records after those of the last batch.

        Returns:
            The ranges of records that have arrived, to be read next; empty without any.
            None if there is more than a small batch, or if no reader reads ahead.
        """
        if self._reader is None:
            return None
        ranges = self._reader.await_more(timeout_s, offsets_max=self._offsets_max)
        if ranges and not self._is_small(sum(one.length for one in ranges)):
            return None
        return ranges

    def stand_by(self) -> None:
        """Stop reading ahead while Spark stages the batches."""
        if self._reader is not None:
            self._reader.stand_by()

    def close(self) -> None:
        """Close the connections."""
        self.stand_by()
        self._worker.close()


def stage_failed(saw: str) -> RetryableError:
    """Return the error of a batch that the driver itself could not stage."""
    return RetryableError(
        "DRIVER_STAGE_FAILED",
        saw=saw,
        why="The driver gave up the whole batch; nothing of it was published.",
        fix="Nothing to do if it passes; otherwise report it with the driver's output.",
    )


def _collect(events: DataFrame) -> ReadRecords:
    """Take the rows of a frame from Spark, with its count of the records.

    Raises:
        TooManyBytesError: Spark refuses to send so many bytes.
    """
    # One task reads all partitions: starting more takes longer than reading.
    one = events.coalesce(1)
    try:
        rows = one.toArrow()
    except SPARK_FAILURES as failure:
        if _TOO_LARGE not in str(failure):
            raise
        raise TooManyBytesError from failure
    # An ``Observation`` does not work here: ``toArrow`` signals the end of its action
    # before its job has begun.
    measured = one._jdf.queryExecution().observedMetrics()  # noqa: SLF001 - as above
    return ReadRecords(rows=rows, records=int(measured.apply(_RECORDS).getLong(0)))
