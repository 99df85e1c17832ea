"""What every ``Home`` must do: one suite, run on the fake and on Postgres.

Each case is one fact, and takes a fresh harness::

    @pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
    def test_my_home_conforms(case, my_harness):
        case(my_harness)

After each step a case checks both sides: what the home answered, and what a reader of
the tables sees. The cases of the watermark are in ``watermark_cases``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from tallyweir.sinks.protocol.decisions import PublishOutcome
from tallyweir.sinks.protocol.errors import (
    FatalError,
    FencedError,
    OutcomeUnknownError,
    RetryableError,
)
from tallyweir.sinks.protocol.identity import Attempt
from tallyweir.sinks.protocol.offsets import OffsetRange, TopicPartition
from tallyweir.sinks.protocol.ports import BatchPlan, RowsRejectedError
from tallyweir.sinks.protocol.votes import NOTHING_STAGED, BatchTally
from tallyweir.sinks.protocol.watermark import ClockRule
from tallyweir.sinks.testing.home_harness import (
    IDLE_TIMEOUT_US,
    P0,
    P1,
    WATERMARK_DELAY_US,
    HomeDriver,
    HomeHarness,
    LedgerLine,
    refused,
)
from tallyweir.sinks.testing.planned_batches import (
    event_time_us,
    plan_upon,
    positions_of,
)
from tallyweir.sinks.testing.watermark_cases import WATERMARK_CASES

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


def epochs_rise_with_every_claim(harness: HomeHarness) -> None:
    """No two drivers ever hold the same epoch."""
    epochs = [harness.new_driver().claim_epoch() for _ in range(3)]
    assert epochs == sorted(set(epochs))
    assert epochs[-1] == harness.new_driver().read_progress().newest_epoch


def an_unused_pipeline_stands_at_the_beginning(harness: HomeHarness) -> None:
    """Before the first batch there are no positions, no watermark, no sequence."""
    seen = HomeDriver(harness).see()
    assert (
        seen.progress.positions,
        seen.progress.watermark_us,
        seen.progress.last_sequence,
    ) == ({}, None, 0)
    assert (seen.rows, seen.ledger) == ([], [])


def the_next_batch_commits(harness: HomeHarness) -> None:
    """Rows, offsets, watermark, sequence and ledger move together."""
    driver = HomeDriver(harness)
    for sequence, length in enumerate((3, 5), start=1):
        before = driver.see()
        plan = driver.plan({P0: length})
        tally = driver.stage(plan)
        assert before == driver.see(), "staging alone changes nothing to be seen"

        assert PublishOutcome.COMMITTED is driver.publish(plan, tally)

        after = driver.see()
        until = plan.ranges[0].until_offset
        assert until == after.progress.positions[P0].next_offset
        assert sequence == after.progress.last_sequence
        assert (
            event_time_us(until - 1) - WATERMARK_DELAY_US == after.progress.watermark_us
        )
        assert [(P0, offset) for offset in range(until)] == after.rows
        assert (
            LedgerLine(
                sequence=sequence,
                epoch=driver.epoch,
                committed=length,
                checksum=sum(range(plan.ranges[0].from_offset, until)),
            )
            == (after.ledger[-1])
        )


def only_rows_of_attempts_that_voted_are_published(harness: HomeHarness) -> None:
    """Rows of a zombie or speculative attempt never leave staging."""
    driver = HomeDriver(harness)
    plan = driver.plan({P0: 2})
    harness.stage(plan, Attempt(900), positions_of(plan.ranges))
    tally = driver.stage(plan)
    harness.stage(plan, Attempt(901), positions_of(plan.ranges))

    assert PublishOutcome.COMMITTED is driver.publish(plan, tally)

    assert harness.published() == [(P0, 0), (P0, 1)]


def rows_staged_by_an_older_epoch_stay_invisible(harness: HomeHarness) -> None:
    """Each driver starts to count attempts again; the numbers must not be mixed up."""
    old = HomeDriver(harness)
    old.stage(old.plan({P0: 4}))
    new = HomeDriver(harness)
    plan = new.plan({P0: 2})
    tally = new.stage(plan)

    assert PublishOutcome.COMMITTED is new.publish(plan, tally)

    assert harness.published() == [(P0, 0), (P0, 1)]


def a_superseded_driver_is_fenced(harness: HomeHarness) -> None:
    """An older epoch cannot publish, although its offsets fit."""
    old = HomeDriver(harness)
    plan = old.plan({P0: 2})
    tally = old.stage(plan)
    new = HomeDriver(harness)

    error = refused(harness, old, plan, tally)

    assert (FencedError, "FENCED") == (type(error), error.code)
    assert PublishOutcome.COMMITTED is new.run({P0: 2})


def a_superseded_driver_is_fenced_even_from_a_replay(harness: HomeHarness) -> None:
    """The fence comes before the offsets: the driver does not learn of its success."""
    old = HomeDriver(harness)
    plan = old.plan({P0: 2})
    tally = old.stage(plan)
    old.publish(plan, tally)
    HomeDriver(harness)

    assert FencedError is type(refused(harness, old, plan, tally))


def a_driver_whose_claim_was_restored_away_stops(harness: HomeHarness) -> None:
    """Without its claim a driver cannot publish, although no other driver works."""
    driver = HomeDriver(harness)
    plan = driver.plan({P0: 2})
    tally = driver.stage(plan)
    harness.undo_newest_claim()

    error = refused(harness, driver, plan, tally)

    assert (FatalError, "CLAIM_LOST") == (type(error), error.code)


def an_epoch_claimed_again_after_a_restore_is_the_new_drivers(
    harness: HomeHarness,
) -> None:
    """The old driver must not publish what the new one staged under its numbers."""
    old = HomeDriver(harness)
    plan = old.plan({P0: 2, P1: 1})
    tally = old.stage(plan)
    harness.undo_newest_claim()
    new = HomeDriver(harness)
    assert old.epoch == new.epoch
    new_plan = new.plan({P0: 3})
    new_tally = new.stage(new_plan)

    error = refused(harness, old, plan, tally)

    assert (FatalError, "CLAIM_LOST") == (type(error), error.code)
    assert PublishOutcome.COMMITTED is new.publish(new_plan, new_tally)


def a_replay_of_a_committed_batch_changes_nothing(harness: HomeHarness) -> None:
    """Publishing a batch again reports that it is already in the tables."""
    driver = HomeDriver(harness)
    plan = driver.plan({P0: 2, P1: 3})
    tally = driver.stage(plan)
    driver.publish(plan, tally)
    before = driver.see()

    assert PublishOutcome.ALREADY_COMMITTED is driver.publish(plan, tally)

    assert before == driver.see()


def a_gap_is_refused(harness: HomeHarness) -> None:
    """A batch that starts after the stored offset would lose events."""
    _refuse_shifted(harness, {P0: (3, 5)})


def an_overlap_is_refused(harness: HomeHarness) -> None:
    """A batch that starts before the stored offset and ends after doubles events."""
    _refuse_shifted(harness, {P0: (1, 4)})


def mixed_partitions_are_refused(harness: HomeHarness) -> None:
    """A batch is refused if only some of its partitions are already committed."""
    _refuse_shifted(harness, {P0: (0, 2), P1: (2, 4)})


def _refuse_shifted(
    harness: HomeHarness, ranges: Mapping[TopicPartition, tuple[int, int]]
) -> None:
    """Let both partitions stand at 2, then publish other ranges."""
    driver = HomeDriver(harness)
    driver.run({P0: 2, P1: 2})
    shifted = tuple(
        OffsetRange(topic_partition=tp, from_offset=first, until_offset=until)
        for tp, (first, until) in ranges.items()
    )
    plan = replace(driver.plan({P0: 0}), ranges=shifted)
    error = refused(harness, driver, plan, driver.stage(plan))
    assert (FatalError, "OFFSETS_DISAGREE") == (type(error), error.code)


def a_partition_without_records_advances(harness: HomeHarness) -> None:
    """Offsets may hold only markers; the position moves on, and no event appears."""
    driver = HomeDriver(harness)
    plan = driver.plan({P0: 2, P1: 4})
    tally = driver.stage(plan, [(P0, 0), (P0, 1)])

    assert PublishOutcome.COMMITTED is driver.publish(plan, tally)

    after = driver.see()
    assert {
        tp: position.next_offset for tp, position in after.progress.positions.items()
    } == {P0: 2, P1: 4}
    assert after.progress.watermark_us is None


def an_empty_batch_is_written_to_the_ledger(harness: HomeHarness) -> None:
    """A batch without records takes a sequence number and moves the offsets."""
    driver = HomeDriver(harness)
    plan = driver.plan({P0: 3})

    assert PublishOutcome.COMMITTED is driver.publish(plan, driver.stage(plan, []))

    after = driver.see()
    assert [p.next_offset for p in after.progress.positions.values()] == [3]
    assert [(e.sequence, e.committed, e.checksum) for e in after.ledger] == [(1, 0, 0)]
    assert (after.rows, after.progress.watermark_us) == ([], None)


def a_new_partition_starts_at_zero(harness: HomeHarness) -> None:
    """A partition that appears later is read from its beginning."""
    driver = HomeDriver(harness)
    driver.run({P0: 2})

    assert PublishOutcome.COMMITTED is driver.run({P0: 1, P1: 2})

    assert harness.published() == [(P0, 0), (P0, 1), (P0, 2), (P1, 0), (P1, 1)]


def refused_rows_are_named_and_nothing_is_published(harness: HomeHarness) -> None:
    """Exactly the refused positions come back; staged again, the batch commits."""
    driver = HomeDriver(harness)
    bad = [(P0, 1), (P0, 6), (P1, 0)]
    harness.refuse(bad)
    plan = driver.plan({P0: 8, P1: 2})
    tally = driver.stage(plan)
    before = driver.see()

    with pytest.raises(RowsRejectedError) as raised:
        driver.publish(plan, tally)

    assert bad == sorted((row.topic_partition, row.offset) for row in raised.value.rows)
    assert before == driver.see()
    good = [p for p in positions_of(plan.ranges) if p not in bad]
    assert PublishOutcome.COMMITTED is driver.publish(plan, driver.stage(plan, good))
    assert good == harness.published()


def missing_staged_rows_are_retryable(harness: HomeHarness) -> None:
    """A crash of the server empties staging; the batch is staged again."""
    driver = HomeDriver(harness)
    plan = driver.plan({P0: 3})
    tally = driver.stage(plan)
    harness.crash_server()

    error = refused(harness, driver, plan, tally)

    assert (RetryableError, "STAGED_ROWS_MISSING") == (type(error), error.code)
    assert PublishOutcome.COMMITTED is driver.publish(plan, driver.stage(plan))
    assert harness.published() == [(P0, 0), (P0, 1), (P0, 2)]


def rows_of_a_zombie_do_not_replace_those_that_a_crash_took(
    harness: HomeHarness,
) -> None:
    """Staging has as many rows as were voted for, but not of the attempt that voted."""
    driver = HomeDriver(harness)
    plan = driver.plan({P0: 2})
    tally = driver.stage(plan)
    harness.crash_server()
    harness.stage(plan, Attempt(900), positions_of(plan.ranges))

    error = refused(harness, driver, plan, tally)

    assert (RetryableError, "STAGED_ROWS_MISSING") == (type(error), error.code)
    assert PublishOutcome.COMMITTED is driver.publish(plan, driver.stage(plan))
    assert harness.published() == [(P0, 0), (P0, 1)]


def a_commit_whose_answer_is_lost_counts_once(harness: HomeHarness) -> None:
    """The batch is in the tables; publishing again finds it there."""
    _lose_answer(
        harness, committed=True, then_expected=PublishOutcome.ALREADY_COMMITTED
    )


def a_commit_that_never_arrived_counts_once(harness: HomeHarness) -> None:
    """The batch is not in the tables; publishing again puts it there."""
    _lose_answer(harness, committed=False, then_expected=PublishOutcome.COMMITTED)


def _lose_answer(
    harness: HomeHarness, *, committed: bool, then_expected: PublishOutcome
) -> None:
    driver = HomeDriver(harness)
    driver.run({P0: 1})
    plan = driver.plan({P0: 3})
    tally = driver.stage(plan)
    harness.lose_next_answer(committed=committed)

    with pytest.raises(OutcomeUnknownError):
        driver.publish(plan, tally)

    assert then_expected is driver.publish(plan, tally)
    assert [(P0, offset) for offset in range(4)] == harness.published()
    assert [line.sequence for line in harness.ledger()] == [1, 2]
    assert PublishOutcome.COMMITTED is driver.run({P0: 1})


#: Every fact, in the order of the protocol.
CASES: tuple[Callable[[HomeHarness], None], ...] = (
    epochs_rise_with_every_claim,
    an_unused_pipeline_stands_at_the_beginning,
    the_next_batch_commits,
    only_rows_of_attempts_that_voted_are_published,
    rows_staged_by_an_older_epoch_stay_invisible,
    a_superseded_driver_is_fenced,
    a_superseded_driver_is_fenced_even_from_a_replay,
    a_driver_whose_claim_was_restored_away_stops,
    an_epoch_claimed_again_after_a_restore_is_the_new_drivers,
    a_replay_of_a_committed_batch_changes_nothing,
    a_gap_is_refused,
    an_overlap_is_refused,
    mixed_partitions_are_refused,
    a_partition_without_records_advances,
    an_empty_batch_is_written_to_the_ledger,
    a_new_partition_starts_at_zero,
    *WATERMARK_CASES,
    refused_rows_are_named_and_nothing_is_published,
    missing_staged_rows_are_retryable,
    rows_of_a_zombie_do_not_replace_those_that_a_crash_took,
    a_commit_whose_answer_is_lost_counts_once,
    a_commit_that_never_arrived_counts_once,
    *STAGE_AHEAD_CASES,
    *TICK_CASES,
)
