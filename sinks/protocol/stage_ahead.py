"""Stages each batch of a stream while the one before it is being published.

So tasks are busy while Postgres moves rows, and Postgres is busy while tasks read. At
most two batches are under way: one that is published, and the next, which is staged.
Safety does not depend on this module. A publish transaction compares offsets, sequence,
watermark and clocks with the stored ones under its lock. So a batch that was planned on
a batch that failed can never be published.

This module knows no threads. The caller passes a function that begins work which ends
later: a thread in production, a step of its own in the simulation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from tallyweir.sinks.protocol.coordinator import Coordinator, VotedBatch
from tallyweir.sinks.protocol.decisions import check_epoch
from tallyweir.sinks.protocol.ports import (
    BatchPlan,
    Home,
    PlanBasis,
    RowsRejectedError,
    Stage,
)
from tallyweir.sinks.protocol.watermark import ClockRule


def find_basis(home: Home, rule: ClockRule, former: VotedBatch | None) -> PlanBasis:
    """Find the state that the next batch is planned on.

    This checks for a newer driver only when it reads the home anyway; publishing checks
    again under the lock.

    Args:
        home: The driver's home database.
        rule: How the watermark follows the partitions.
        former: The batch before, if it is still being published.

    Raises:
        FencedError: A newer driver has claimed an epoch.
        RetryableError: The server is unreachable.
    """
    if former is not None:
        return former.plan.basis_after(rule, former.tally)
    progress = home.read_progress()
    check_epoch(home.claim.epoch, progress.newest_epoch)
    return progress.basis


class Begun(Protocol):
    """Work that was begun and ends by itself."""

    def result(self) -> None:
        """Wait for its end; raise the error that it raised."""
        ...

    def done(self) -> bool:
        """Tell whether it has ended."""
        ...


class StageAhead:
    """Takes one driver's batches to their end; one thread at a time calls it.

    Args:
        coordinator: Stages and publishes each batch.
        begin: Begins the given work, without waiting for its end.
    """

    def __init__(
        self, coordinator: Coordinator, begin: Callable[[Callable[[], None]], Begun]
    ) -> None:
        self._coordinator = coordinator
        self._begin = begin
        self._under_way: _UnderWay | None = None

    def run_batch(
        self,
        plan: Callable[[VotedBatch | None], BatchPlan | None],
        stage: Stage,
        publish: Callable[[VotedBatch], None],
    ) -> None:
        """Stage a batch, wait for the one before it, begin to publish this one.

        If a table refuses rows of the batch before, that changes its counts, its
        watermark and the IDs that it files. So that batch is staged and published again
        first, and then this one is planned and staged again.

        Args:
            plan: Plans the batch on the one that is still being published, or on None
                if all are published. Returns None if there is nothing to do.
            stage: Phase one.
            publish: Publishes the batch through the coordinator and reports it. Never
                works on two batches at once.

        Raises:
            TallyweirError: As ``Coordinator.run_batch``, for this batch or the one
                before it. An error of the one before comes first.

        Crash:
            As ``Coordinator.run_batch``, for each of the two batches: the next driver
            starts after the decided ones.
        """
        while True:
            try:
                planned = plan(self._under_way.batch if self._under_way else None)
                if planned is None:
                    return
                voted = self._coordinator.stage_batch(planned, stage)
            except Exception:
                self.end()
                raise
            if not self.settle():
                break
        voted = self._coordinator.work_on_keys(voted)
        self._under_way = _UnderWay(
            batch=voted,
            stage=stage,
            publish=publish,
            begun=self._begin(partial(publish, voted)),
        )

    @property
    def is_at_work(self) -> bool:
        """Whether a batch is being published at this moment."""
        return self._under_way is not None and not self._under_way.begun.done()

    def settle(self) -> bool:
        """Wait until no batch is under way.

        Returns:
            Whether tables had refused rows, so that the batch was staged again.

        Raises:
            TallyweirError: As ``Coordinator.run_batch``.
        """
        under_way, self._under_way = self._under_way, None
        if under_way is None:
            return False
        try:
            under_way.begun.result()
        except RowsRejectedError as refusal:
            self._publish_without(under_way, refusal)
            return True
        return False

    def end(self) -> None:
        """Wait for the batch under way; if rows were refused, leave it unpublished.

        Raises:
            TallyweirError: As ``Coordinator.run_batch``.
        """
        under_way, self._under_way = self._under_way, None
        if under_way is None:
            return
        try:
            under_way.begun.result()
        except RowsRejectedError:
            return

    def _publish_without(
        self, under_way: _UnderWay, refusal: RowsRejectedError
    ) -> None:
        batch = under_way.batch
        while True:
            batch = self._coordinator.work_on_keys(
                self._coordinator.stage_again(batch, under_way.stage, refusal)
            )
            try:
                under_way.publish(batch)
            except RowsRejectedError as again:
                refusal = again
            else:
                return


@dataclass(frozen=True, slots=True, kw_only=True)
class _UnderWay:
    """A batch that is being published."""

    batch: VotedBatch
    stage: Stage
    publish: Callable[[VotedBatch], None]
    begun: Begun
