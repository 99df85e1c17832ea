"""Stages each batch of a stream while the one before it is being published.

Tasks are busy while Postgres moves rows, and Postgres is while tasks read. At most two
batches are under way: one that is published, and the next, which is staged. What keeps
that safe is not in here. A publish transaction compares offsets, sequence, watermark
and clocks with what is under its lock, so a batch that was planned upon one that came
to nothing can never be published.

Knows no threads: whoever makes it says how something is begun that ends later, a
thread in production, a step of its own in the simulation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from sinks.protocol.coordinator import Coordinator, VotedBatch
from sinks.protocol.decisions import check_epoch
from sinks.protocol.ports import (
    BatchPlan,
    Home,
    PlanBasis,
    RowsRejectedError,
    Stage,
)
from sinks.protocol.watermark import ClockRule


def find_basis(home: Home, rule: ClockRule, former: VotedBatch | None) -> PlanBasis:
    """Find what the next batch is planned upon.

    Whether a newer driver works is asked only where the home is read in any case;
    publishing asks under the lock.

    Args:
        home: The driver's.
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
    """Something that was begun and ends by itself."""

    def result(self) -> None:
        """Wait for its end; raise what it has raised."""
        ...

    def done(self) -> bool:
        """Tell whether it has ended."""
        ...


class StageAhead:
    """Takes one driver's batches to their end; one thread at a time calls it.

    Args:
        coordinator: Does what there is to do with a batch.
        begin: Begins what it is given, without waiting for its end.
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
        """Stage a batch, see the one before it published, begin to publish this one.

        Rows that a table has refused of the batch before change what it counts, its
        watermark and the IDs that it files. So it is staged and published again
        first, and then this one is planned and staged anew.

        Args:
            plan: Plans the batch upon the one that is still being published, or None
                where all are. Returns None if there is nothing to do.
            stage: Phase one.
            publish: Publishes the batch through the coordinator, and tells whoever
                wants to know. Never at work for two batches at once.

        Raises:
            TallyweirError: As ``Coordinator.run_batch``; of this batch or the one
                before it, whose error comes first.

        Crash:
            As ``Coordinator.run_batch``, for each of the two batches: the next driver
            starts behind what was decided.
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
        """Wait until no batch is under way any more.

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
        """Wait for what is under way, and leave a batch that was refused undone.

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
