"""Drives one batch from its plan to the ledger; runs on the driver.

Knows no Postgres, Spark, Kafka or clock: it calls ports and pure decisions only, so
that the very same code runs in production and on the fakes.
"""

from __future__ import annotations

from dataclasses import dataclass

from sinks.faultpoints import FaultPoint, making
from sinks.protocol.decisions import PublishOutcome
from sinks.protocol.errors import FatalError, OutcomeUnknownError
from sinks.protocol.keyed_votes import tally_keyed_votes
from sinks.protocol.ports import (
    BatchPlan,
    RejectedRow,
    RowsRejectedError,
    Stage,
    StageKeys,
)
from sinks.protocol.publication import Publisher
from sinks.protocol.votes import NOTHING_STAGED, BatchTally, tally_votes

#: How often a lost answer to COMMIT is asked for before the driver starts over.
PUBLISH_TRIES_MAX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """How a batch ended and what it held."""

    outcome: PublishOutcome
    tally: BatchTally
    restagings: int


class Coordinator:
    """Takes the batches of one driver to their end, one after the other.

    Args:
        publisher: Of the driver's claim.
        stage_keys: Phase 2b, for a pipeline with keyed state.
    """

    def __init__(
        self, publisher: Publisher, stage_keys: StageKeys | None = None
    ) -> None:
        self._publisher = publisher
        self._stage_keys = stage_keys

    def run_batch(self, plan: BatchPlan, stage: Stage) -> BatchResult:
        """Stage a batch and publish it once in effect.

        Rows that a result table refuses become dead letters: the batch is staged
        again without them, because aggregates that hold a row cannot give it back.

        Raises:
            FencedError: A newer driver works; nothing was published.
            RetryableError: The outside world failed. Either nothing was published,
                or the offsets in Postgres say that it was; a new start reads them.
            FatalError: See its message; nothing was published.

        Crash:
            Before ``decision_committed`` the batch has left nothing but staged rows
            that no vote covers any more, and maybe branches that the next driver
            rolls back. After it, the next driver starts behind the batch, once it
            has committed the branches that are left.
        """
        rejected: list[RejectedRow] = []
        restagings = 0
        while True:
            with making(FaultPoint.ROWS_STAGED):
                staged = stage(plan, tuple(rejected))
            with making(FaultPoint.VOTED):
                tally = tally_votes(
                    staged.votes, plan.ranges, records_read=staged.records_read
                )
            tally = self._work_on_keys(plan, tally)
            try:
                outcome = self._publish(plan, tally, restagings)
            except RowsRejectedError as refusal:
                rejected.extend(_new_rejections(refusal, rejected))
                restagings += 1
                continue
            return BatchResult(outcome=outcome, tally=tally, restagings=restagings)

    def run_tick(self, plan: BatchPlan) -> BatchResult:
        """Run a batch without events, for what is due all the same.

        Raises:
            TallyweirError: As ``run_batch``.

        Crash:
            As ``run_batch``: what was due is still due until the tick is decided.
        """
        assert not plan.ranges, "a tick reads nothing"
        tally = self._work_on_keys(plan, NOTHING_STAGED)
        outcome = self._publish(plan, tally, restagings=0)
        return BatchResult(outcome=outcome, tally=tally, restagings=0)

    def _work_on_keys(self, plan: BatchPlan, tally: BatchTally) -> BatchTally:
        """Run phase 2b on what phase one voted for.

        Whatever it reads stays as it is until the batch is published: staging is
        voted for, and keyed state changes in publish transactions only.
        """
        if self._stage_keys is None:
            return tally
        with making(FaultPoint.KEYS_STAGED):
            staged = self._stage_keys(plan, tally)
        with making(FaultPoint.KEYS_VOTED):
            return tally_keyed_votes(
                tally, staged.votes, watermark_us=staged.watermark_us
            )

    def _publish(
        self, plan: BatchPlan, tally: BatchTally, restagings: int
    ) -> PublishOutcome:
        """Publish, and ask again while the answer to COMMIT stays unknown.

        Asking again is safe: the offsets are compared under the pipeline's lock,
        which the lost transaction holds until it has ended one way or the other.
        """
        for tries_left in reversed(range(PUBLISH_TRIES_MAX)):
            try:
                return self._publisher.publish(plan, tally, restagings=restagings)
            except OutcomeUnknownError:
                if not tries_left:
                    raise
        raise AssertionError("unreachable: the last try returns or raises")


def _new_rejections(
    refusal: RowsRejectedError, known: list[RejectedRow]
) -> list[RejectedRow]:
    positions = {(row.topic_partition, row.offset) for row in known}
    fresh = [
        row
        for row in refusal.rows
        if (row.topic_partition, row.offset) not in positions
    ]
    if not fresh:
        raise FatalError(
            "REJECTION_REPEATED",
            saw=f"{len(refusal.rows)} rows were rejected again after they had been "
            "taken out.",
            why="The batch would be staged for ever.",
            fix="Report this with the table's definition.",
        )
    return fresh
