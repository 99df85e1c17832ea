"""The one bridge between Spark's ``foreachBatch`` and the batch protocol."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import NoReturn

from pyspark.sql import DataFrame

from sinks.faultpoints import FaultPoint, making
from sinks.protocol.coordinator import BatchResult, Coordinator, VotedBatch
from sinks.protocol.errors import RetryableError
from sinks.protocol.identity import BatchKey, SparkBatchId
from sinks.protocol.measures import Measures
from sinks.protocol.offsets import OffsetRange, TopicPartition
from sinks.protocol.ports import BatchPlan, Rejection, StagedBatch
from sinks.protocol.recovery import check_topic_identity
from sinks.protocol.stage_ahead import StageAhead, find_basis
from spark_jobs.batches.batch_report import BatchReport, BatchTimes
from spark_jobs.batches.bridge_parts import BridgeParts
from spark_jobs.batches.fence_watch import FenceWatch
from spark_jobs.batches.ticks import Ticks
from spark_jobs.engine.background import begin_in_thread
from spark_jobs.engine.process_cpu import ProcessCpu
from spark_jobs.engine.spark_failure import SPARK_FAILURES, what_failed_and_why
from spark_jobs.source.offset_log import read_planned_ranges

#: Seconds after which Spark is asked again in any case. Its planning takes some hundred
#: milliseconds, for which events wait.
OWN_BATCHES_S = 60.0
#: Seconds until it is noticed that the driver is to stop.
_OWN_LOOK_S = 0.1


class Bridge:
    """Called by Spark once per micro-batch, in a thread of Spark's choice.

    A call returns when its batch is staged and the one before it is published; the
    batch itself is published meanwhile, in a thread of its own. Spark takes it for
    done. Nobody reads what Spark thinks: the next driver starts from the offsets in
    Postgres.

    The first error is kept in ``failure`` as what it is; Spark only passes on its
    words. After ``finish`` no further batch is begun.

    While batches are small, Spark takes longer to plan one than the driver to stage it.
    So a call goes on, if it may, with batches of what comes meanwhile. Spark's next
    range overlaps with theirs then, and what is left of it is the next batch.

    Args:
        parts: What it works with.
        ahead_max: How many offsets a call may go on for behind what Spark has planned;
            0 if none may. With more than Spark plans at a time it would fall behind.
        on_planned: Told of each batch that is planned.
        on_published: Told of each batch that is published.
    """

    def __init__(
        self,
        parts: BridgeParts,
        *,
        ahead_max: int,
        on_planned: Callable[[BatchPlan], None],
        on_published: Callable[[BatchReport], None],
    ) -> None:
        self._parts = parts
        # Ticks need the times between Spark's batches.
        self._ahead_max = 0 if parts.jobs.layout.keyed else ahead_max
        #: Batches planned so far that came to be staged, and where they end.
        self._batches = 0
        self._ends = dict(parts.starts)
        #: Where Spark's last plan ends.
        self._planned_ends = dict(parts.starts)
        #: Tasks that Spark can run at a time; executors come and go.
        self._slots = 0
        #: What Spark has yet to hear of.
        self._new_partitions: set[TopicPartition] = set()
        self._on_planned = on_planned
        self._on_published = on_published
        self._coordinator = Coordinator(
            parts.databases.publisher,
            parts.jobs.stage_keys if parts.jobs.layout.keyed else None,
        )
        self._ahead = StageAhead(self._coordinator, self._begin)
        self._publishing: Future[None] | None = None
        self._cpu = ProcessCpu(parts.jobs.spark)
        #: When the driver could begin the next batch.
        self._free_since = time.monotonic()
        self._ticks = Ticks(
            parts, self._coordinator, on_planned=on_planned, on_published=self._end
        )
        self._fence = FenceWatch(parts.home, parts.epoch)
        self._is_ending = False
        self._in_batch = threading.Lock()
        self.failure: Exception | None = None

    def __call__(self, raw: DataFrame, batch_id: int) -> None:
        """Stage one batch, and begin to publish it once the one before it is."""
        with self._in_batch:
            if self._is_ending or self.failure is not None:
                return
            with self._failure_kept():
                # Asked in Spark's own thread: the JVM makes one for each that asks.
                self._slots = self._parts.jobs.tasks()
                self._run_planned(raw, batch_id)
                self._go_on()

    def tick(self) -> None:
        """See to what is to be done while Spark has no batch at hand.

        The last batch is seen to its end, and a fence is noticed. Then, if a timer is
        due, a batch without events is run. To be called often; it looks for both about
        once a second.

        Raises:
            TallyweirError: As a batch does; it is kept in ``failure`` as well.
        """
        if not self._in_batch.acquire(blocking=False):
            return
        try:
            if self._is_ending or self.failure is not None or self._ahead.is_at_work:
                return
            with self._failure_kept():
                self._ahead.settle()
                self._fence.look_at_rest()
                self._ticks.run_due()
        finally:
            self._in_batch.release()

    def run_all_due(self, is_told_to_stop: Callable[[], bool]) -> None:
        """See to all that is due by now, the last batch first; where no query runs.

        Raises:
            TallyweirError: As a batch does; it is kept in ``failure`` as well.
        """
        with self._in_batch:
            if self._is_ending or self.failure is not None:
                return
            with self._failure_kept():
                self._ahead.settle()
                self._fence.look_at_rest()
                self._ticks.run_all_due(is_told_to_stop)

    def close(self, through_us: int, is_told_to_stop: Callable[[], bool]) -> bool:
        """Close what waits for a watermark up to here; where no query runs.

        Returns:
            Whether nothing is left; False if it was told to stop before.

        Raises:
            TallyweirError: As a batch does; it is kept in ``failure`` as well.
        """
        with self._in_batch, self._failure_kept():
            return self._ticks.close(through_us, is_told_to_stop)

    def finish(self, timeout_s: float) -> bool:
        """Begin no further batch; wait for what is at hand.

        Returns:
            Whether nothing is left to wait for.

        Raises:
            TallyweirError: As a batch does; it is kept in ``failure`` as well.
        """
        return self._end_publishing(timeout_s, self._ahead.settle)

    def begin_no_more(self) -> None:
        """Begin no further batch; a call that goes on returns soon."""
        self._is_ending = True

    def note_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Take note of a topic's partitions: Spark is asked soon about new ones."""
        self._new_partitions = set(partitions) - self._planned_ends.keys()

    def end(self, timeout_s: float) -> None:
        """Wait for what is being published when the query has ended.

        A batch that could not be published is left to the next start.
        """
        with suppress(Exception):
            self._end_publishing(timeout_s, self._ahead.end)

    def _end_publishing(self, timeout_s: float, finish: Callable[[], object]) -> bool:
        ends_at = time.monotonic() + timeout_s
        self._is_ending = True
        if not self._in_batch.acquire(timeout=timeout_s):
            return False
        try:
            if self._publishing is not None:
                wait([self._publishing], max(0.0, ends_at - time.monotonic()))
            if self._ahead.is_at_work:
                return False
            if self.failure is None:
                with self._failure_kept():
                    finish()
        finally:
            self._in_batch.release()
        return True

    def _begin(self, publish: Callable[[], None]) -> Future[None]:
        self._publishing = begin_in_thread(publish)
        return self._publishing

    def _run_planned(self, raw: DataFrame, batch_id: int) -> None:
        """Run what Spark has planned, less what went before."""
        parts = self._parts
        planned = read_planned_ranges(parts.checkpoint, batch_id, parts.starts)
        self._planned_ends = {one.topic_partition: one.until_offset for one in planned}
        self._new_partitions -= self._planned_ends.keys()
        done = {
            one.topic_partition: end
            for one in planned
            if (end := self._ends.get(one.topic_partition, 0)) > one.from_offset
        }
        ranges = [
            replace(one, from_offset=begin, until_offset=max(begin, one.until_offset))
            for one in planned
            for begin in [done.get(one.topic_partition, one.from_offset)]
        ]
        self._run(ranges, lambda: parts.jobs.leave_out(raw, done))

    def _go_on(self) -> None:
        """Run batches of what comes, until Spark is to be asked again."""
        ends_at = time.monotonic() + OWN_BATCHES_S
        while (
            self._offsets_ahead() < self._ahead_max
            and not (self._is_ending or self._new_partitions)
            and time.monotonic() < ends_at
        ):
            ranges = self._parts.jobs.driver_stage.await_more(_OWN_LOOK_S)
            if ranges is None:
                return
            if ranges:
                self._run(ranges, _not_here)
            elif not self._ahead.is_at_work:
                self._ahead.settle()
                self._fence.look_at_rest()

    def _offsets_ahead(self) -> int:
        """Count what was staged behind the end of Spark's last plan."""
        ends = self._planned_ends.items()
        return sum(self._ends.get(place, end) - end for place, end in ends)

    def _run(
        self, ranges: Sequence[OffsetRange], records: Callable[[], DataFrame]
    ) -> None:
        if not any(covered.length for covered in ranges):
            return
        times = BatchTimes(between=time.monotonic() - self._free_since)

        def plan(former: VotedBatch | None) -> BatchPlan:
            with times.spent_on("plan"), making(FaultPoint.PLANNED):
                planned = self._plan(ranges, former)
            self._on_planned(planned)
            return planned

        def stage(plan: BatchPlan, rejected: Sequence[Rejection]) -> StagedBatch:
            with times.spent_on("stage"):
                return self._stage(records, plan, rejected)

        self._ahead.run_batch(plan, stage, partial(self._publish, times))
        self._free_since = time.monotonic()
        self._batches += 1
        self._ends = {one.topic_partition: one.until_offset for one in ranges}

    def _publish(self, times: BatchTimes, voted: VotedBatch) -> None:
        measured = self._measured(times, voted)
        with times.spent_on("publish"):
            result = self._coordinator.publish(measured)
        self._end(times, voted.plan, result)

    def _measured(self, times: BatchTimes, voted: VotedBatch) -> VotedBatch:
        """Add to a batch's measures what only the driver knows."""
        measures = voted.tally.measures + Measures(
            seconds=times.before_publishing(),
            cpu_seconds=self._cpu.spent(),
            slots=self._slots,
        )
        return replace(voted, tally=replace(voted.tally, measures=measures))

    def _end(self, times: BatchTimes, plan: BatchPlan, result: BatchResult) -> None:
        self._on_published(times.report(plan, result))
        with making(FaultPoint.SEALED):
            parts = self._parts
            parts.databases.tidy(live_from_us=parts.jobs.live_from_us(plan))

    def _plan(
        self, ranges: Sequence[OffsetRange], former: VotedBatch | None
    ) -> BatchPlan:
        parts = self._parts
        basis = find_basis(parts.home, parts.jobs.layout.clock_rule, former)
        planned_at_us = parts.home.read_clock_us()
        parts.jobs.lookups.refresh(planned_at_us)
        return BatchPlan(
            key=BatchKey(epoch=parts.epoch, spark_batch_id=SparkBatchId(self._batches)),
            ranges=ranges,
            watermark_us=basis.watermark_us,
            after_sequence=basis.after_sequence,
            clocks=basis.clocks,
            planned_at_us=planned_at_us,
            topic_ids=basis.topic_ids,
            lookups=parts.jobs.versions,
        )

    def _stage(
        self,
        records: Callable[[], DataFrame],
        plan: BatchPlan,
        rejected: Sequence[Rejection],
    ) -> StagedBatch:
        """Run phase one, and make sure that what it read is still the same topics'.

        A topic that is deleted and made again would otherwise give other events under
        the planned offsets. No id is ever given twice, so a topic that has its own
        when all is read has had it all the time: asked before, nothing more would be
        known. The broker is asked while the rows are staged.
        """
        answers: list[Callable[[], Mapping[str, str]]] = []
        staged = self._parts.jobs.stage_events(
            records,
            plan,
            rejected,
            on_read=lambda: answers.append(self._parts.admin.ask_topic_ids()),
        )
        check_topic_identity(plan.topic_ids, answers[-1]())
        return staged

    @contextmanager
    def _failure_kept(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.failure = _explain(self._fence.name(error))
            if self.failure is error:
                raise
            raise self.failure from error


def _not_here() -> NoReturn:
    """Stand for the frame of a batch that Spark has not planned.

    Raises:
        RetryableError: ``DRIVER_STAGE_FAILED``.
    """
    raise RetryableError(
        "DRIVER_STAGE_FAILED",
        saw="The driver could not read a batch again.",
        why="The batch at hand was dropped whole.",
        fix="Nothing to do if it passes; else report it with the driver's output.",
    )


def _explain(error: Exception) -> Exception:
    """Say in our terms that a job of Spark failed; leave every other error as it is.

    A worker that was killed or a broker that went away passes by itself. What does
    not is given up by the driver after a few tries.
    """
    # That Kafka deleted what a task was to read is one; the next start tells it.
    if not isinstance(error, SPARK_FAILURES):
        return error
    return RetryableError(
        "SPARK_JOB_FAILED",
        saw=f"Spark could not stage a batch: {what_failed_and_why(error)}",
        why="The batch at hand was dropped whole.",
        fix="Nothing to do if it passes; the log of Spark has the details.",
    )
