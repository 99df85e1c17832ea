"""The coordinator, on the fakes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import pytest

from tallyweir.sinks import faultpoints
from tallyweir.sinks.faultpoints import FaultPoint
from tallyweir.sinks.protocol.coordinator import PUBLISH_TRIES_MAX, Coordinator
from tallyweir.sinks.protocol.decisions import PublishOutcome
from tallyweir.sinks.protocol.errors import (
    FatalError,
    FencedError,
    OutcomeUnknownError,
    RetryableError,
)
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.ports import (
    BatchPlan,
    RejectedBucket,
    RejectedRow,
    Rejection,
    RowsRejectedError,
    StagedBatch,
)
from tallyweir.sinks.protocol.publisher import Publisher
from tallyweir.sinks.testing.memory_home import MemoryDatabase
from tallyweir.sinks.testing.memory_server import LostAnswer
from tallyweir.sinks.testing.memory_stage import MemoryStage
from tallyweir.sinks.testing.planned_batches import RESULTS, plan_batch

_P0 = TopicPartition("events", 0)
_BEFORE_COMMIT = [FaultPoint.ROWS_STAGED, FaultPoint.VOTED]


@pytest.fixture
def reached() -> Iterator[list[FaultPoint]]:
    """The fault points in the order in which they are reached."""
    points: list[FaultPoint] = []
    for point in FaultPoint:
        faultpoints.arm(point, lambda point=point: points.append(point))  # type: ignore[misc]
    yield points
    faultpoints.disarm_all()


class _World:
    """A database with one driver at the beginning of a batch of ten offsets."""

    def __init__(self, *, zombies: bool = False) -> None:
        self.database = MemoryDatabase()
        self.home = self.database.new_driver()
        self.stage = MemoryStage(self.database, zombies=zombies)
        epoch = self.home.claim_epoch()
        self.coordinator = Coordinator(Publisher(self.home))
        self.plan = plan_batch(self.home.read_progress(), {_P0: 10}, epoch=epoch)

    @property
    def offsets(self) -> list[int]:
        return sorted(o for _, o in self.database.state.tables.get(RESULTS, ()))


def test_a_batch_passes_the_fault_points_in_order(reached: list[FaultPoint]) -> None:
    """Staged, voted, committed; planning and sealing are the caller's."""
    world = _World()
    result = world.coordinator.run_batch(world.plan, world.stage)
    assert (PublishOutcome.COMMITTED, 0) == (result.outcome, result.restagings)
    assert [*_BEFORE_COMMIT, FaultPoint.DECISION_COMMITTED] == reached
    assert list(range(10)) == world.offsets


def test_rows_of_attempts_without_a_vote_are_left_behind() -> None:
    """Zombie attempts of every task change nothing."""
    world = _World(zombies=True)
    world.coordinator.run_batch(world.plan, world.stage)
    assert list(range(10)) == world.offsets


def test_rows_that_are_lost_are_not_made_up_for_by_a_twins() -> None:
    """A restore takes a claim away: two drivers under one epoch have one staging.

    A crash then empties it, and the other one stages as many rows by its own first
    attempts before the batch is published.
    """
    database = MemoryDatabase()
    backup = database.state
    twin, home = database.new_driver(), database.new_driver()
    twin.claim_epoch()
    database.restore(backup)
    epoch = home.claim_epoch()
    assert (twin.claim.epoch, twin.claim.nonce) != (epoch, home.claim.nonce)
    assert twin.claim.epoch == epoch
    coordinator = Coordinator(Publisher(home))
    stage, twins = (
        MemoryStage(database, name_attempt=one.claim.attempt) for one in (home, twin)
    )
    progress = home.read_progress()
    mine = plan_batch(progress, {_P0: 10}, epoch=epoch)
    voted = coordinator.stage_batch(mine, stage)
    database.crash()
    other = TopicPartition("events", 1)
    twins(plan_batch(progress, {other: 10}, epoch=epoch), [])

    with pytest.raises(RetryableError, match="STAGED_ROWS_MISSING"):
        coordinator.publish(voted)

    assert not database.state.tables.get(RESULTS)


def test_refused_rows_become_dead_letters_by_staging_again(
    reached: list[FaultPoint],
) -> None:
    """The second staging leaves the refused rows out, and the law still holds."""
    world = _World()
    world.database.refused = {(_P0, 3), (_P0, 8)}
    result = world.coordinator.run_batch(world.plan, world.stage)
    assert 1 == result.restagings
    assert (8, 2) == (result.tally.counts.committed, result.tally.counts.dead)
    assert [0, 1, 2, 4, 5, 6, 7, 9] == world.offsets
    assert [1] == [entry.restagings for entry in world.database.state.ledger]
    assert [0, 0] == world.stage.calls
    assert [*_BEFORE_COMMIT, *_BEFORE_COMMIT, FaultPoint.DECISION_COMMITTED] == (
        reached
    )


def test_refusals_of_several_rounds_add_up() -> None:
    """Rows refused later join the ones known, which stay out."""
    world = _World()
    rounds = deque([{(_P0, 3)}, {(_P0, 8)}, set()])

    def stage(plan: BatchPlan, rejected: Sequence[Rejection]) -> StagedBatch:
        world.database.refused = rounds.popleft()
        return world.stage(plan, rejected)

    result = world.coordinator.run_batch(world.plan, stage)

    assert (2, 2) == (result.restagings, result.tally.counts.dead)
    assert [0, 1, 2, 4, 5, 6, 7, 9] == world.offsets


def test_a_refusal_that_repeats_is_fatal() -> None:
    """A row that comes back although it was taken out would be staged for ever."""
    world = _World()
    world.database.refused = {(_P0, 3)}

    def forgetful(plan: BatchPlan, rejected: Sequence[Rejection]) -> StagedBatch:
        del rejected
        return world.stage(plan, ())

    with pytest.raises(FatalError) as raised:
        world.coordinator.run_batch(world.plan, forgetful)
    assert "REJECTION_REPEATED" == raised.value.code
    assert [0, 0] == world.stage.calls
    assert [] == world.offsets


def test_rejected_buckets_join_the_rejected_rows() -> None:
    """Each is told to the next staging once, and one that comes back is fatal."""
    world = _World()
    row = RejectedRow(topic_partition=_P0, offset=3, detail="")
    bucket = RejectedBucket(bucket=3, detail="")
    voted = world.coordinator.stage_batch(world.plan, world.stage)
    for refusal in (
        RowsRejectedError([row]),
        RowsRejectedError([row], buckets=[bucket]),
    ):
        voted = world.coordinator.stage_again(voted, world.stage, refusal)
    assert (row, bucket) == voted.rejected
    with pytest.raises(FatalError, match="REJECTION_REPEATED"):
        world.coordinator.stage_again(
            voted, world.stage, RowsRejectedError(buckets=[bucket])
        )


@pytest.mark.parametrize("answer", LostAnswer)
def test_a_lost_answer_is_asked_for_again(answer: LostAnswer) -> None:
    """Whether or not COMMIT arrived, the batch counts once and nothing is restaged."""
    world = _World()
    world.database.answers_to_lose.append(answer)
    result = world.coordinator.run_batch(world.plan, world.stage)
    committed = answer is not LostAnswer.DROPPED
    assert result.outcome is (
        PublishOutcome.ALREADY_COMMITTED if committed else PublishOutcome.COMMITTED
    )
    assert list(range(10)) == world.offsets
    assert [0] == world.stage.calls


def test_answers_that_stay_lost_are_given_up(reached: list[FaultPoint]) -> None:
    """The driver starts over and learns from the offsets."""
    world = _World()
    world.database.answers_to_lose.extend([LostAnswer.DROPPED] * 9)
    with pytest.raises(OutcomeUnknownError):
        world.coordinator.run_batch(world.plan, world.stage)
    assert 9 - PUBLISH_TRIES_MAX == len(world.database.answers_to_lose)
    assert _BEFORE_COMMIT == reached


def test_the_last_try_may_succeed() -> None:
    """As many answers may be lost as there are tries, less one."""
    world = _World()
    lost = [LostAnswer.DROPPED] * (PUBLISH_TRIES_MAX - 1)
    world.database.answers_to_lose.extend(lost)
    result = world.coordinator.run_batch(world.plan, world.stage)
    assert PublishOutcome.COMMITTED is result.outcome


def test_a_superseded_driver_stops(reached: list[FaultPoint]) -> None:
    """A newer claim made while the tasks ran ends the batch without an effect."""
    world = _World()

    def supersede() -> None:
        world.database.new_driver().claim_epoch()

    faultpoints.arm(FaultPoint.VOTED, supersede)
    with pytest.raises(FencedError):
        world.coordinator.run_batch(world.plan, world.stage)
    assert [] == world.offsets
    assert FaultPoint.DECISION_COMMITTED not in reached


def test_disarmed_points_do_nothing(reached: list[FaultPoint]) -> None:
    """Production never arms a point, and disarming makes all inert."""
    faultpoints.disarm_all()
    for point in FaultPoint:
        with faultpoints.making(point):
            pass
    assert [] == reached
