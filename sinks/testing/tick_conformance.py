"""What every ``Home`` must do with ticks; cases of ``sinks.testing.conformance``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tallyweir.sinks.protocol.decisions import PublishOutcome
from tallyweir.sinks.protocol.errors import FatalError, FencedError, OutcomeUnknownError
from tallyweir.sinks.protocol.votes import NOTHING_STAGED
from tallyweir.sinks.testing.home_harness import (
    P0,
    P1,
    WATERMARK_DELAY_US,
    HomeDriver,
    HomeHarness,
    refused,
)
from tallyweir.sinks.testing.planned_batches import event_time_us


def a_tick_moves_the_sequence_and_no_offset(harness: HomeHarness) -> None:
    """A batch without events is in the ledger like any other."""
    driver = HomeDriver(harness)
    driver.run({P0: 3})
    before = driver.see()

    assert PublishOutcome.COMMITTED is driver.publish(driver.plan({}), NOTHING_STAGED)

    after = driver.see()
    assert before.progress.positions == after.progress.positions
    assert before.rows == after.rows
    assert [(e.sequence, e.committed) for e in after.ledger] == [(1, 3), (2, 0)]
    assert PublishOutcome.COMMITTED is driver.run({P0: 2})


def a_tick_published_again_changes_nothing(harness: HomeHarness) -> None:
    """It is recognised by its sequence, since it has no offsets."""
    driver = HomeDriver(harness)
    plan = driver.plan({})
    driver.publish(plan, NOTHING_STAGED)
    before = driver.see()

    assert PublishOutcome.ALREADY_COMMITTED is driver.publish(plan, NOTHING_STAGED)

    assert before == driver.see()


def a_tick_behind_a_later_batch_is_refused(harness: HomeHarness) -> None:
    """The state that it was computed from is no longer the pipeline's."""
    driver = HomeDriver(harness)
    plan = driver.plan({})
    driver.run({P0: 1})
    driver.run({P0: 1})
    error = refused(harness, driver, plan, NOTHING_STAGED)
    assert (FatalError, "SEQUENCE_DISAGREES") == (type(error), error.code)


def a_superseded_driver_may_not_tick(harness: HomeHarness) -> None:
    """The fence also holds for batches without events."""
    old = HomeDriver(harness)
    plan = old.plan({})
    HomeDriver(harness)
    assert FencedError is type(refused(harness, old, plan, NOTHING_STAGED))


def a_tick_lets_an_idle_partition_go(harness: HomeHarness) -> None:
    """A tick moves the watermark after time has passed without events."""
    driver = HomeDriver(harness)
    driver.run({P0: 20, P1: 1})
    harness.make_idle(P1)

    driver.publish(driver.plan({}), NOTHING_STAGED)

    assert event_time_us(19) - WATERMARK_DELAY_US == (
        driver.home.read_progress().watermark_us
    )


def a_tick_that_closes_moves_the_watermark_to_where_it_is_told(
    harness: HomeHarness,
) -> None:
    """Later batches leave it there, however old their events are."""
    driver = HomeDriver(harness)
    driver.run({P0: 3})
    before_us = driver.home.read_progress().watermark_us
    assert before_us is not None
    for closes_through_us in (before_us + 5_000_000, before_us):
        plan = replace(driver.plan({}), closes_through_us=closes_through_us)
        assert PublishOutcome.COMMITTED is driver.publish(plan, NOTHING_STAGED)
        after_us = driver.home.read_progress().watermark_us
        assert after_us == before_us + 5_000_000, "it never goes back"
    driver.run({P0: 1})
    assert driver.home.read_progress().watermark_us == after_us


def a_tick_whose_answer_is_lost_counts_once(harness: HomeHarness) -> None:
    """The tick is in the ledger; publishing again finds it there."""
    _lose_answer_to_tick(harness, committed=True)


def a_tick_that_never_arrived_counts_once(harness: HomeHarness) -> None:
    """The tick is not in the ledger; publishing again puts it there."""
    _lose_answer_to_tick(harness, committed=False)


def _lose_answer_to_tick(harness: HomeHarness, *, committed: bool) -> None:
    driver = HomeDriver(harness)
    driver.run({P0: 1})
    plan = driver.plan({})
    harness.lose_next_answer(committed=committed)

    with pytest.raises(OutcomeUnknownError):
        driver.publish(plan, NOTHING_STAGED)

    found = driver.publish(plan, NOTHING_STAGED)
    assert committed == (found is PublishOutcome.ALREADY_COMMITTED)
    assert [line.sequence for line in harness.ledger()] == [1, 2]
    assert PublishOutcome.COMMITTED is driver.run({P0: 1})


TICK_CASES: tuple[Callable[[HomeHarness], None], ...] = (
    a_tick_moves_the_sequence_and_no_offset,
    a_tick_published_again_changes_nothing,
    a_tick_behind_a_later_batch_is_refused,
    a_superseded_driver_may_not_tick,
    a_tick_lets_an_idle_partition_go,
    a_tick_that_closes_moves_the_watermark_to_where_it_is_told,
    a_tick_whose_answer_is_lost_counts_once,
    a_tick_that_never_arrived_counts_once,
)
