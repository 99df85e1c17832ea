"""Drives batches from plan to ledger, each staged while the last one is published.

``Coordinator`` stages a batch again without rows that a table refuses, and publishes it
again while the answer to COMMIT is unknown; ``decisions`` then finds one that was
committed, so that it counts once. It runs on the driver, and knows no Postgres, Spark,
Kafka or clock. It calls only ports and pure decisions, so the same code runs in
production and on the fakes.

``StageAhead`` takes the batches of a stream through it. Tasks are busy while Postgres
moves rows, and Postgres is busy while tasks read. At most two batches are under way:
one that is published, and the next, which is staged. Safety does not depend on it. A
publish transaction compares offsets, sequence, watermark and clocks with the stored
ones under its lock. So a batch that was planned on a batch that failed can never be
published. It knows no threads: the caller passes a function that begins work which ends
later, a thread in production, a step of its own in the simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from tallyweir.sinks.faultpoints import FaultPoint, making
from tallyweir.sinks.protocol.decisions import PublishOutcome, check_epoch
from tallyweir.sinks.protocol.errors import FatalError, OutcomeUnknownError
from tallyweir.sinks.protocol.ports import (
    BatchPlan,
    Home,
    PlanBasis,
    Rejection,
    RowsRejectedError,
    Stage,
    StageKeys,
)
from tallyweir.sinks.protocol.publisher import Publisher
from tallyweir.sinks.protocol.votes import (
    NOTHING_STAGED,
    BatchTally,
    tally_keyed_votes,
    tally_votes,
)
from tallyweir.sinks.protocol.watermark import ClockRule

#: How often the driver tries to learn a lost answer to COMMIT before it starts over.
PUBLISH_TRIES_MAX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """How a batch ended and what it held."""

    outcome: PublishOutcome
    tally: BatchTally
    restagings: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VotedBatch:
    """A batch whose phase one has ended and is covered by votes."""

    plan: BatchPlan
    tally: BatchTally
    #: What tables have refused of it so far; these become dead letters.
    rejected: tuple[Rejection, ...] = ()
    restagings: int = 0


class Coordinator:
    """Takes the batches of one driver to their end.

    Args:
        publisher: Publishes under the driver's claim.
        stage_keys: Phase 2b, for a pipeline with keyed state.
    """

    def __init__(
        self, publisher: Publisher, stage_keys: StageKeys | None = None
    ) -> None:
        self._publisher = publisher
        self._stage_keys = stage_keys

    def run_batch(self, plan: BatchPlan, stage: Stage) -> BatchResult:
        """Stage a batch and publish it, exactly once in effect.

        Rows that a result table refuses become dead letters: the batch is staged
        again without them, because a row cannot be taken out of an aggregate again.

        Raises:
            FencedError: A newer driver works; nothing was published.
            RetryableError: The outside world failed. Either nothing was published,
                or the offsets in Postgres say that it was. A restarted driver reads
                them.
            FatalError: See its message; nothing was published.

        Crash:
            Before ``decision_committed`` the batch has left only staged rows that no
            vote covers any more, and maybe branches, which the next driver rolls back.
            After it, the next driver commits the branches that are left and then
            starts after the batch.
        """
        voted = self.stage_batch(plan, stage)
        while True:
            voted = self.work_on_keys(voted)
            try:
                return self.publish(voted)
            except RowsRejectedError as refusal:
                voted = self.stage_again(voted, stage, refusal)

    def stage_batch(self, plan: BatchPlan, stage: Stage) -> VotedBatch:
        """Run phase one of a batch and add its votes up.

        The batch before it may still be under way. Of this batch, only the plan depends
        on how the other ends.

        Raises:
            TallyweirError: As ``run_batch``.

        Crash:
            Staged rows stay behind; no driver will ever move them.
        """
        return _stage(VotedBatch(plan=plan, tally=NOTHING_STAGED), stage)

    def stage_again(
        self, voted: VotedBatch, stage: Stage, refusal: RowsRejectedError
    ) -> VotedBatch:
        """Run phase one again, without the rows that a table has refused.

        Raises:
            FatalError: ``REJECTION_REPEATED``.
            TallyweirError: As ``run_batch``.
        """
        fresh = _new_rejections(refusal, voted.rejected)
        again = replace(
            voted,
            rejected=(*voted.rejected, *fresh),
            restagings=voted.restagings + 1,
        )
        return _stage(again, stage)

    def work_on_keys(self, voted: VotedBatch) -> VotedBatch:
        """Run phase 2b, if there is one; the batch before must have been published.

        Its input does not change until the batch is published: the staged rows are
        voted for, and keyed state changes only in publish transactions.

        Raises:
            TallyweirError: As ``run_batch``.
        """
        if self._stage_keys is None:
            return voted
        with making(FaultPoint.KEYS_STAGED):
            staged = self._stage_keys(voted.plan, voted.tally)
        with making(FaultPoint.KEYS_VOTED):
            tally = tally_keyed_votes(
                voted.tally, staged.votes, watermark_us=staged.watermark_us
            )
        return replace(voted, tally=tally)

    def publish(self, voted: VotedBatch) -> BatchResult:
        """Publish, and ask again while the answer to COMMIT stays unknown.

        Asking again is safe: the offsets are compared under the pipeline's lock,
        which the lost transaction holds until it has ended one way or the other.

        Raises:
            RowsRejectedError: A result table refused rows; nothing was published.
            TallyweirError: As ``run_batch``.
        """
        for tries_left in reversed(range(PUBLISH_TRIES_MAX)):
            try:
                outcome = self._publisher.publish(
                    voted.plan, voted.tally, restagings=voted.restagings
                )
            except OutcomeUnknownError:
                if not tries_left:
                    raise
            else:
                return BatchResult(
                    outcome=outcome, tally=voted.tally, restagings=voted.restagings
                )
        raise AssertionError("unreachable: the last try returns or raises")

    def run_tick(self, plan: BatchPlan) -> BatchResult:
        """Run a batch without events, for timers and windows that are due.

        Raises:
            TallyweirError: As ``run_batch``.

        Crash:
            As ``run_batch``: what was due stays due until the tick is decided.
        """
        assert not plan.ranges, "a tick reads nothing"
        tick = VotedBatch(plan=plan, tally=NOTHING_STAGED)
        return self.publish(self.work_on_keys(tick))


def _stage(batch: VotedBatch, stage: Stage) -> VotedBatch:
    with making(FaultPoint.ROWS_STAGED):
        staged = stage(batch.plan, batch.rejected)
    with making(FaultPoint.VOTED):
        tally = tally_votes(
            staged.votes, batch.plan.ranges, records_read=staged.records_read
        )
    measures = tally.measures + staged.measures
    return replace(batch, tally=replace(tally, measures=measures))


def _new_rejections(
    refusal: RowsRejectedError, known: Sequence[Rejection]
) -> list[Rejection]:
    keys = {one.key for one in known}
    refused: list[Rejection] = [*refusal.rows, *refusal.buckets]
    fresh = [one for one in refused if one.key not in keys]
    if not fresh:
        raise FatalError(
            "REJECTION_REPEATED",
            saw=f"{len(refused)} rows were rejected again after they had been removed.",
            why="The driver would restage the batch endlessly.",
            fix="Report this with the table's definition.",
        )
    return fresh


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
