"""What every ``Home`` must do with a batch that was staged ahead of its turn.

These cases are part of the suite of ``tallyweir.sinks.testing.conformance``.
"""

from __future__ import annotations

from collections.abc import Callable

from tallyweir.sinks.protocol.decisions import PublishOutcome
from tallyweir.sinks.protocol.errors import FatalError
from tallyweir.sinks.protocol.offsets import OffsetRange
from tallyweir.sinks.protocol.ports import BatchPlan
from tallyweir.sinks.protocol.votes import BatchTally
from tallyweir.sinks.protocol.watermark import ClockRule
from tallyweir.sinks.testing.home_harness import (
    IDLE_TIMEOUT_US,
    P0,
    WATERMARK_DELAY_US,
    HomeDriver,
    HomeHarness,
    refused,
)
from tallyweir.sinks.testing.planned_batches import plan_upon

_RULE = ClockRule(delay_us=WATERMARK_DELAY_US, idle_timeout_us=IDLE_TIMEOUT_US)


def a_batch_is_published_behind_the_one_it_was_planned_upon(
    harness: HomeHarness,
) -> None:
    """The state that a plan computes is the home's state after the batch."""
    driver = HomeDriver(harness)
    plan = driver.plan({P0: 3})
    tally = driver.stage(plan)
    for _ in range(3):
        following = _plan_behind(driver, plan, tally)
        staged_ahead = driver.stage(following)
        assert PublishOutcome.COMMITTED is driver.publish(plan, tally)
        assert driver.home.read_progress().basis == plan.basis_after(_RULE, tally)
        plan, tally = following, staged_ahead
    assert PublishOutcome.COMMITTED is driver.publish(plan, tally)
    assert [(P0, offset) for offset in range(12)] == harness.published()
    assert [line.sequence for line in harness.ledger()] == [1, 2, 3, 4]


def a_batch_is_refused_while_the_one_before_it_is_not_published(
    harness: HomeHarness,
) -> None:
    """Whatever happened to the batch before, it cannot be left out."""
    driver = HomeDriver(harness)
    plan = driver.plan({P0: 3})
    tally = driver.stage(plan)
    following = _plan_behind(driver, plan, tally)
    staged_ahead = driver.stage(following)

    error = refused(harness, driver, following, staged_ahead)

    assert (FatalError, "OFFSETS_DISAGREE") == (type(error), error.code)
    assert PublishOutcome.COMMITTED is driver.publish(plan, tally)
    assert PublishOutcome.COMMITTED is driver.publish(following, staged_ahead)
    assert [(P0, offset) for offset in range(6)] == harness.published()


def _plan_behind(driver: HomeDriver, plan: BatchPlan, tally: BatchTally) -> BatchPlan:
    """Plan three more offsets, on the state that a batch will leave."""
    (before,) = plan.ranges
    covered = OffsetRange(
        topic_partition=P0,
        from_offset=before.until_offset,
        until_offset=before.until_offset + 3,
    )
    return plan_upon(
        plan.basis_after(_RULE, tally),
        [covered],
        epoch=driver.epoch,
        spark_batch_id=plan.sequence,
    )


STAGE_AHEAD_CASES: tuple[Callable[[HomeHarness], None], ...] = (
    a_batch_is_published_behind_the_one_it_was_planned_upon,
    a_batch_is_refused_while_the_one_before_it_is_not_published,
)
