"""Drives one batch from its plan to the ledger, through refused rows and lost COMMITs.

It stages the batch again without rows that a table refuses, and publishes it again
while the answer to COMMIT is unknown. ``stage_ahead`` stages a batch while the one
before it is published.

The coordinator runs on the driver, and knows no Postgres, Spark, Kafka or clock. It
calls only ports and pure decisions, so the same code runs in production and on the
fakes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tallyweir.sinks.faultpoints import FaultPoint, making
from tallyweir.sinks.protocol.decisions import PublishOutcome
from tallyweir.sinks.protocol.errors import FatalError, OutcomeUnknownError
from tallyweir.sinks.protocol.keyed_votes import tally_keyed_votes
from tallyweir.sinks.protocol.ports import (
    BatchPlan,
    Rejection,
    RowsRejectedError,
    Stage,
    StageKeys,
)
from tallyweir.sinks.protocol.publisher import Publisher
from tallyweir.sinks.protocol.votes import NOTHING_STAGED, BatchTally, tally_votes

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
