"""The one bridge between Spark's ``foreachBatch`` and the batch protocol.

Between batches it watches whether the driver is fenced or its pipeline discarded.
"""

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

from tallyweir.sinks.faultpoints import FaultPoint, making
from tallyweir.sinks.postgres.publish.home import PostgresHome
from tallyweir.sinks.protocol.coordinator import (
    BatchResult,
    StageAhead,
    VotedBatch,
    find_basis,
)
from tallyweir.sinks.protocol.decisions import check_epoch
from tallyweir.sinks.protocol.errors import (
    ConfigurationError,
    FencedError,
    RetryableError,
    TallyweirError,
)
from tallyweir.sinks.protocol.identity import BatchKey, Epoch, SparkBatchId
from tallyweir.sinks.protocol.measures import Measures
from tallyweir.sinks.protocol.offsets import OffsetRange, TopicPartition
from tallyweir.sinks.protocol.ports import BatchPlan, Rejection, StagedBatch
from tallyweir.sinks.protocol.recovery import check_topic_identity
from tallyweir.spark_jobs.batches.batch_report import (
    BatchReport,
    BatchTimes,
    ProcessCpu,
)
from tallyweir.spark_jobs.batches.driver_stage import stage_failed
from tallyweir.spark_jobs.batches.prepared_pipeline import BridgeParts
from tallyweir.spark_jobs.batches.ticks import Ticks
from tallyweir.spark_jobs.engine.spark_failure import job_failed
from tallyweir.spark_jobs.source.kafka_source import read_planned_ranges

#: Seconds after which Spark plans again in any case. Its planning takes some hundred
#: milliseconds, during which events wait.
OWN_BATCHES_S = 60.0
#: Seconds until the bridge notices that the driver is to stop.
_OWN_LOOK_S = 0.1


class Bridge:
    """Spark calls it once per micro-batch, in a thread of Spark's choice.

    A call returns when its batch is staged and the one before it is published. A thread
    of its own then publishes the batch, while Spark considers it done. That has no
    effect: the next driver starts from the offsets in Postgres.

    ``failure`` keeps the first error as an object; Spark passes on only its text. After
    ``finish``, the bridge begins no further batch.

    While batches are small, Spark takes longer to plan one than the driver takes to
    stage it. So a call goes on, if it may, with batches of the records that arrive
    meanwhile. Spark's next range then overlaps with theirs, and the rest of it is the
    next batch.

    Args:
        parts: The parts that the driver hands to it.
        ahead_max: Most offsets that a call may read beyond Spark's plan; 0 for none. If
            more than Spark plans at a time, Spark would fall behind.
        on_planned: Called with each planned batch.
        on_published: Called with each published batch.
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
        # Ticks need the time between Spark's batches.
        self._ahead_max = 0 if parts.jobs.layout.keyed else ahead_max
        #: Number of batches staged so far, and their end offsets.
        self._batches = 0
        self._ends = dict(parts.starts)
        #: End offsets of Spark's last plan.
        self._planned_ends = dict(parts.starts)
        #: Tasks that Spark can run at a time; it changes as executors come and go.
        self._slots = 0
        #: Partitions that Spark does not know yet.
        self._new_partitions: set[TopicPartition] = set()
        self._on_planned = on_planned
        self._on_published = on_published
        self._coordinator = parts.jobs.coordinator(parts.databases.publisher)
        self._ahead = StageAhead(self._coordinator, self._begin)
        self._publishing: Future[None] | None = None
        self._cpu = ProcessCpu(parts.jobs.spark)
        #: Since when the driver could begin the next batch.
        self._free_since = time.monotonic()
        self._ticks = Ticks(
            parts, self._coordinator, on_planned=on_planned, on_published=self._end
        )
        self._fence = FenceWatch(parts.home, parts.epoch)
        self._is_ending = False
        self._in_batch = threading.Lock()
        self.failure: Exception | None = None

    def __call__(self, raw: DataFrame, batch_id: int) -> None:
        """Stage one batch, and begin to publish it after the one before it."""
        with self._in_batch:
            if self._is_ending or self.failure is not None:
                return
            with self._failure_kept():
                # Ask in Spark's own thread: the JVM makes a thread for each thread that
                # asks.
                self._slots = self._parts.jobs.tasks()
                self._run_planned(raw, batch_id)
                self._go_on()

    def tick(self) -> None:
        """Do the work that is due while Spark has no batch at hand.

        It finishes the last batch, and notices a fence. Then, if a timer is due, it
        runs a tick. Call it often; it checks for a fence and for timers about once a
        second.

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
        """Finish the last batch, then run all due ticks; only while no query runs.

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
        """Close what waits for a watermark up to a time; only while no query runs.

        Returns:
            True if nothing is left; False if it was told to stop before.

        Raises:
            TallyweirError: As a batch does; it is kept in ``failure`` as well.
        """
        with self._in_batch, self._failure_kept():
            return self._ticks.close(through_us, is_told_to_stop)

    def finish(self, timeout_s: float) -> bool:
        """Begin no further batch; wait for the batches at hand.

        Returns:
            True if nothing is left to wait for.

        Raises:
            TallyweirError: As a batch does; it is kept in ``failure`` as well.
        """
        return self._end_publishing(timeout_s, self._ahead.settle)

    def begin_no_more(self) -> None:
        """Begin no further batch; a running call returns soon."""
        self._is_ending = True

    def note_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Note the partitions of a topic; if some are new, Spark plans again soon."""
        self._new_partitions = set(partitions) - self._planned_ends.keys()

    def end(self, timeout_s: float) -> None:
        """Wait for the batch that is being published when the query has ended.

        If that batch cannot be published, the next start does it again.
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
        """Run the ranges that Spark has planned, without offsets that are done."""
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
        """Run batches of arriving records, until it is time for Spark to plan again."""
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
        """Count the offsets that were staged beyond the end of Spark's last plan."""
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
        """Add the measures that only the driver knows to a batch."""
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
        """Run phase one, and check that it has read from the same topics.

        Otherwise a topic that is deleted and created again would give other events
        under the planned offsets. Kafka never reuses a topic id. So a topic that still
        has its id after all records are read has had it all the time, and an earlier
        check would add nothing. The broker answers while the rows are staged.
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
            self.failure = job_failed(self._fence.name(error))
            if self.failure is error:
                raise
            raise self.failure from error


def begin_in_thread(work: Callable[[], None]) -> Future[None]:
    """Run ``work`` in a new thread that does not keep the process alive.

    The threads of a pool would keep it alive: a driver that must stop and gives up on a
    server that hangs could then never end.
    """
    begun: Future[None] = Future()

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - the waiting thread raises it
            begun.set_exception(error)
        else:
            begun.set_result(None)

    threading.Thread(target=run, name="publish", daemon=True).start()
    return begun


def _not_here() -> NoReturn:
    """Take the place of the frame of a batch that Spark has not planned.

    Raises:
        RetryableError: ``DRIVER_STAGE_FAILED``.
    """
    raise stage_failed("The driver could not reread a batch.")


#: Seconds between two checks of a driver that has nothing to publish.
_LOOK_S = 1.0


class FenceWatch:
    """Checks the claims; used by the thread that plans.

    A batch notices by itself that it is fenced. But without events there is no batch,
    and the effect of an act, such as offsets that were moved back, would have to wait
    for one.

    Args:
        home: The pipeline's home.
        epoch: The epoch that this driver has claimed.
    """

    def __init__(self, home: PostgresHome, epoch: Epoch) -> None:
        self._home = home
        self._epoch = epoch
        self._looks_again_at = 0.0

    def look_at_rest(self) -> None:
        """Check about once a second; ignore a server that does not answer.

        Raises:
            FencedError: A newer epoch is claimed.
            ConfigurationError: ``PIPELINE_DISCARDED``.
        """
        if time.monotonic() < self._looks_again_at:
            return
        self._looks_again_at = time.monotonic() + _LOOK_S
        try:
            self._check()
        except RetryableError:
            return

    def name(self, error: Exception) -> Exception:
        """Return the fence or discard that explains an error; otherwise the error."""
        if isinstance(error, FencedError):
            return error
        try:
            self._check()
        except FencedError as fenced:
            return fenced
        except ConfigurationError as found:
            return found if found.code == "PIPELINE_DISCARDED" else error
        except TallyweirError:
            return error
        return error

    def _check(self) -> None:
        check_epoch(self._epoch, self._home.read_newest_epoch())
