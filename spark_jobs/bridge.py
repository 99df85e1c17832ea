"""The one bridge between Spark's ``foreachBatch`` and the batch protocol."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame

from sinks.faultpoints import FaultPoint, making
from sinks.protocol.coordinator import BatchResult, Coordinator
from sinks.protocol.decisions import check_epoch
from sinks.protocol.errors import FencedError, RetryableError, TallyweirError
from sinks.protocol.identity import BatchKey, SparkBatchId
from sinks.protocol.ports import BatchPlan, RejectedRow, StagedBatch
from sinks.protocol.recovery import check_topic_identity, topic_ids
from spark_jobs.bridge_parts import BridgeParts
from spark_jobs.offset_log import read_planned_ranges
from spark_jobs.spark_failure import SPARK_FAILURES, what_failed_and_why

#: Seconds between two looks for timers that are due.
_TICK_LOOK_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """What happened to a batch, for the log and for who watches the driver."""

    plan: BatchPlan
    result: BatchResult
    seconds: float
    #: Seconds of it by phase: plan, stage and publish, each with its repeats.
    phases: Mapping[str, float]


class Bridge:
    """Called by Spark once per micro-batch, in a thread of Spark's choice.

    The first error is kept in ``failure`` as what it is; Spark only passes on its
    words. After ``drain`` no further batch is begun.
    """

    def __init__(
        self,
        parts: BridgeParts,
        *,
        on_planned: Callable[[BatchPlan], None],
        on_published: Callable[[BatchReport], None],
    ) -> None:
        self._parts = parts
        self._on_planned = on_planned
        self._on_published = on_published
        self._coordinator = Coordinator(
            parts.databases.publisher,
            parts.jobs.stage_keys if parts.jobs.layout.keyed else None,
        )
        self._looks_again_at = 0.0
        self._draining = False
        self._in_batch = threading.Lock()
        self.failure: Exception | None = None

    def __call__(self, raw: DataFrame, batch_id: int) -> None:
        """Run one batch to its end."""
        with self._in_batch:
            if self._draining or self.failure is not None:
                # Spark will think that the batch is done. Nobody reads what Spark
                # thinks: the next driver starts from the offsets in Postgres.
                return
            try:
                self._run(raw, SparkBatchId(batch_id))
            except Exception as error:
                self.failure = _explain(self._name_fence(error))
                raise

    def tick(self, *, at_once: bool = False) -> bool:
        """Run a batch without events if a timer is due and no batch is at hand.

        To be called often; it looks about once a second, unless told to at once.

        Returns:
            Whether a tick was published.

        Raises:
            TallyweirError: As a batch does; it is kept in ``failure`` as well.
        """
        if not self._parts.jobs.layout.keyed:
            return False
        if not at_once and time.monotonic() < self._looks_again_at:
            return False
        if not self._in_batch.acquire(blocking=False):
            return False
        try:
            if self._draining or self.failure is not None:
                return False
            self._looks_again_at = time.monotonic() + _TICK_LOOK_S
            return self._run_tick()
        except Exception as error:
            self.failure = _explain(self._name_fence(error))
            raise self.failure from error
        finally:
            self._in_batch.release()

    def drain(self, timeout_s: float) -> bool:
        """Begin no further batch; wait for the one at hand.

        Returns:
            Whether no batch is running any more.
        """
        self._draining = True
        if not self._in_batch.acquire(timeout=timeout_s):
            return False
        self._in_batch.release()
        return True

    def _run(self, raw: DataFrame, batch_id: SparkBatchId) -> None:
        began = time.monotonic()
        with making(FaultPoint.PLANNED):
            plan = self._plan(batch_id)
        if not any(planned.length for planned in plan.ranges):
            return
        self._on_planned(plan)
        planned_s = time.monotonic() - began
        staged_s = 0.0

        def stage(plan: BatchPlan, rejected: Sequence[RejectedRow]) -> StagedBatch:
            nonlocal staged_s
            since = time.monotonic()
            staged = self._parts.jobs.stage_events(raw, plan, rejected)
            self._check_topics_are_the_same(plan)
            staged_s += time.monotonic() - since
            return staged

        result = self._coordinator.run_batch(plan, stage)
        seconds = time.monotonic() - began
        phases = {
            "plan": planned_s,
            "stage": staged_s,
            "publish": seconds - planned_s - staged_s,
        }
        self._on_published(
            BatchReport(plan=plan, result=result, seconds=seconds, phases=phases)
        )
        with making(FaultPoint.SEALED):
            self._tidy(plan)

    def _run_tick(self) -> bool:
        began = time.monotonic()
        plan = self._plan_tick()
        if plan is None:
            return False
        self._on_planned(plan)
        planned_s = time.monotonic() - began
        result = self._coordinator.run_tick(plan)
        seconds = time.monotonic() - began
        phases = {"plan": planned_s, "stage": 0.0, "publish": seconds - planned_s}
        self._on_published(
            BatchReport(plan=plan, result=result, seconds=seconds, phases=phases)
        )
        with making(FaultPoint.SEALED):
            self._tidy(plan)
        return True

    def _plan_tick(self) -> BatchPlan | None:
        """Plan a tick; None while nothing is due."""
        parts = self._parts
        progress = parts.home.read_progress()
        check_epoch(parts.epoch, progress.newest_epoch)
        now_us = parts.home.read_clock_us()
        watermark_us = parts.jobs.layout.clock_rule.watermark_after(
            progress.watermark_us, progress.clocks.values(), now_us=now_us
        )
        if not parts.home.has_due_timers(watermark_us=watermark_us, now_us=now_us):
            return None
        with making(FaultPoint.PLANNED):
            return BatchPlan(
                key=BatchKey(epoch=parts.epoch, spark_batch_id=None),
                ranges=(),
                watermark_us=progress.watermark_us,
                after_sequence=progress.last_sequence,
                clocks=progress.clocks,
                planned_at_us=now_us,
                topic_ids={},
            )

    def _tidy(self, plan: BatchPlan) -> None:
        parts = self._parts
        parts.databases.tidy(live_from_us=parts.jobs.live_from_us(plan))

    def _plan(self, batch_id: SparkBatchId) -> BatchPlan:
        parts = self._parts
        progress = parts.home.read_progress()
        check_epoch(parts.epoch, progress.newest_epoch)
        planned_at_us = parts.home.read_clock_us()
        parts.jobs.lookups.refresh(planned_at_us)
        ranges = read_planned_ranges(parts.checkpoint, batch_id, parts.starts)
        ids = parts.admin.read_topic_ids()
        check_topic_identity(topic_ids(progress.positions), ids)
        return BatchPlan(
            key=BatchKey(epoch=parts.epoch, spark_batch_id=batch_id),
            ranges=ranges,
            watermark_us=progress.watermark_us,
            after_sequence=progress.last_sequence,
            clocks=progress.clocks,
            planned_at_us=planned_at_us,
            topic_ids=ids,
            lookups=parts.jobs.versions,
        )

    def _check_topics_are_the_same(self, plan: BatchPlan) -> None:
        """Make sure that the rows just read are still the same topics'.

        A topic that is deleted and made again while a batch reads it would otherwise
        give other events under the planned offsets.
        """
        check_topic_identity(plan.topic_ids, self._parts.admin.read_topic_ids())

    def _name_fence(self, error: Exception) -> Exception:
        """Tell a driver whose tables a newer one has dropped that it is fenced."""
        if isinstance(error, FencedError):
            return error
        try:
            progress = self._parts.home.read_progress()
            check_epoch(self._parts.epoch, progress.newest_epoch)
        except FencedError as fenced:
            return fenced
        except TallyweirError:
            return error
        return error


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
