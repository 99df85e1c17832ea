"""Ticks: batches without events, which run because something is due."""

from __future__ import annotations

import time
from collections.abc import Callable

from tallyweir.sinks.faultpoints import FaultPoint, making
from tallyweir.sinks.protocol.coordinator import BatchResult, Coordinator
from tallyweir.sinks.protocol.decisions import check_epoch
from tallyweir.sinks.protocol.identity import BatchKey
from tallyweir.sinks.protocol.ports import BatchPlan
from tallyweir.sinks.protocol.votes import NOTHING_STAGED
from tallyweir.spark_jobs.batches.batch_report import BatchTimes
from tallyweir.spark_jobs.batches.prepared_pipeline import BridgeParts

#: Seconds between two checks for due timers.
_LOOK_S = 1.0


class Ticks:
    """Runs the ticks of one claim while no batch is at hand.

    Args:
        parts: Parts of the bridge.
        coordinator: Coordinator of the bridge.
        on_planned: Called with each planned tick.
        on_published: Called with each published tick.
    """

    def __init__(
        self,
        parts: BridgeParts,
        coordinator: Coordinator,
        *,
        on_planned: Callable[[BatchPlan], None],
        on_published: Callable[[BatchTimes, BatchPlan, BatchResult], None],
    ) -> None:
        self._parts = parts
        self._coordinator = coordinator
        self._on_planned = on_planned
        self._on_published = on_published
        self._looks_again_at = 0.0

    def run_due(self) -> None:
        """Run a tick if a timer is due; check about once a second.

        Raises:
            TallyweirError: As a batch does.
        """
        if not self._parts.jobs.layout.keyed:
            return
        if time.monotonic() < self._looks_again_at:
            return
        self._looks_again_at = time.monotonic() + _LOOK_S
        self._run_next()

    def run_all_due(self, is_told_to_stop: Callable[[], bool]) -> None:
        """Run ticks until all timers that are due now have fired.

        All these ticks are planned at the same moment of the clock, so a timer that a
        function sets for a later moment stays.

        Args:
            is_told_to_stop: Asked before each tick.

        Raises:
            TallyweirError: As a batch does.
        """
        if not self._parts.jobs.layout.keyed:
            return
        now_us = self._parts.home.read_clock_us()
        while not is_told_to_stop() and self._run_next(now_us=now_us):
            pass

    def close(self, through_us: int, is_told_to_stop: Callable[[], bool]) -> bool:
        """Run ticks until nothing open waits for a watermark any more.

        Timers in event time that these ticks set fire as well, if they are due by then.
        Timers of the clock stay: functions may set them again without end.

        Args:
            through_us: The time that the watermark is moved to.
            is_told_to_stop: Asked before each tick.

        Returns:
            True if nothing is left; False if it was told to stop before.

        Raises:
            TallyweirError: As a batch does.

        Crash:
            Each tick is a batch of its own. The next call closes the rest.
        """
        while not is_told_to_stop():
            if not self._run_next(closes_through_us=through_us):
                return True
        return False

    def _run_next(
        self, *, closes_through_us: int | None = None, now_us: int | None = None
    ) -> bool:
        times = BatchTimes()
        with times.spent_on("plan"):
            plan = self._plan(closes_through_us, now_us)
        if plan is None:
            return False
        self._on_planned(plan)
        with times.spent_on("publish"):
            result = self._coordinator.run_tick(plan)
        self._on_published(times, plan, result)
        return True

    def _plan(
        self, closes_through_us: int | None, now_us: int | None
    ) -> BatchPlan | None:
        """Plan a tick for now, or for a given time; None while nothing is due."""
        parts = self._parts
        progress = parts.home.read_progress()
        check_epoch(parts.epoch, progress.newest_epoch)
        plan = BatchPlan(
            key=BatchKey(epoch=parts.epoch, spark_batch_id=None),
            ranges=(),
            watermark_us=progress.watermark_us,
            after_sequence=progress.last_sequence,
            clocks=progress.clocks,
            planned_at_us=parts.home.read_clock_us() if now_us is None else now_us,
            topic_ids={},
            closes_through_us=closes_through_us,
        )
        if not self._is_due(plan):
            return None
        with making(FaultPoint.PLANNED):
            return plan

    def _is_due(self, plan: BatchPlan) -> bool:
        watermark_us = plan.watermark_after(
            self._parts.jobs.layout.clock_rule, NOTHING_STAGED
        )
        if plan.closes_through_us is not None and watermark_us != plan.watermark_us:
            return True
        return self._parts.home.has_due_timers(
            watermark_us=watermark_us, now_us=plan.fires_clock_through_us
        )
