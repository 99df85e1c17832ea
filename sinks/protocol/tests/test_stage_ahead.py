"""A batch is staged while the one before it is published, on the fakes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pytest

from tallyweir.sinks.protocol.coordinator import (
    Coordinator,
    StageAhead,
    VotedBatch,
    find_basis,
)
from tallyweir.sinks.protocol.errors import FatalError, FencedError, RetryableError
from tallyweir.sinks.protocol.offsets import OffsetRange, TopicPartition
from tallyweir.sinks.protocol.ports import (
    BatchPlan,
    RejectedRow,
    RowsRejectedError,
    StagedBatch,
)
from tallyweir.sinks.protocol.publisher import Publisher
from tallyweir.sinks.testing.memory_home import MemoryDatabase
from tallyweir.sinks.testing.memory_stage import MemoryStage
from tallyweir.sinks.testing.planned_batches import RESULTS, plan_upon

_P0 = TopicPartition("events", 0)
_LENGTH = 10


class _Begun:
    """Publishes when it is told to, or waited for."""

    def __init__(self, publish: Callable[[], None]) -> None:
        self._publish = publish
        self._ended = False
        self._error: Exception | None = None

    def go_on(self) -> None:
        if self._ended:
            return
        self._ended = True
        try:
            self._publish()
        except (RowsRejectedError, RetryableError, FatalError, FencedError) as error:
            self._error = error

    def done(self) -> bool:
        return self._ended

    def result(self) -> None:
        self.go_on()
        if self._error is not None:
            raise self._error


class _World:
    """A driver whose batches are of ten offsets each; it notes what it does."""

    def __init__(self) -> None:
        self.database = MemoryDatabase(watermark_delay_us=1_000_000)
        self.home = self.database.new_driver()
        self.epoch = self.home.claim_epoch()
        self.tasks = MemoryStage(self.database)
        self.coordinator = Coordinator(Publisher(self.home))
        self.ahead = StageAhead(self.coordinator, self._begin)
        self.begun: list[_Begun] = []
        self.done: list[str] = []
        self.while_staging: Callable[[], None] = lambda: None

    def run(self, number: int) -> None:
        """Run the batch of that number, from 0."""
        self.ahead.run_batch(
            partial(self._plan, number),
            partial(self._stage, number),
            partial(self._publish, number),
        )

    @property
    def offsets(self) -> list[int]:
        return sorted(o for _, o in self.database.state.tables.get(RESULTS, ()))

    def _begin(self, publish: Callable[[], None]) -> _Begun:
        self.begun.append(_Begun(publish))
        return self.begun[-1]

    def _plan(self, number: int, former: VotedBatch | None) -> BatchPlan:
        basis = find_basis(self.home, self.database.clock_rule, former)
        upon = "Postgres" if former is None else f"batch {basis.after_sequence - 1}"
        self.done.append(f"plan {number} upon {upon}")
        covered = OffsetRange(
            topic_partition=_P0,
            from_offset=number * _LENGTH,
            until_offset=(number + 1) * _LENGTH,
        )
        return plan_upon(basis, [covered], epoch=self.epoch, spark_batch_id=number)

    def _stage(
        self, number: int, plan: BatchPlan, rejected: Sequence[RejectedRow]
    ) -> StagedBatch:
        self.while_staging()
        self.done.append(f"stage {number}")
        return self.tasks(plan, rejected)

    def _publish(self, number: int, voted: VotedBatch) -> None:
        self.coordinator.publish(voted)
        self.done.append(f"publish {number}")


def test_a_batch_is_staged_before_the_one_before_it_is_published() -> None:
    """It is planned upon what that one will leave, and published after it."""
    world = _World()
    for number in range(3):
        world.run(number)
    assert not world.ahead.settle()
    assert [
        *("plan 0 upon Postgres", "stage 0"),
        *("plan 1 upon batch 0", "stage 1", "publish 0"),
        *("plan 2 upon batch 1", "stage 2", "publish 1"),
        "publish 2",
    ] == world.done
    assert list(range(30)) == world.offsets
    assert [1, 2, 3] == [entry.sequence for entry in world.database.state.ledger]


def test_a_batch_that_was_published_meanwhile_is_not_waited_for() -> None:
    """Nothing is read from Postgres for it either."""
    world = _World()
    world.run(0)
    assert world.ahead.is_at_work
    world.begun[0].go_on()
    assert not world.ahead.is_at_work
    world.run(1)
    assert ["plan 1 upon batch 0", "stage 1"] == world.done[-2:]


def test_nothing_to_read_leaves_alone_what_is_under_way() -> None:
    """It is settled when there is time for it."""
    world = _World()
    world.run(0)
    world.ahead.run_batch(lambda _former: None, world.tasks, lambda _voted: None)
    assert world.ahead.is_at_work
    world.ahead.settle()
    assert "publish 0" == world.done[-1]


def test_rows_that_are_refused_make_the_next_batch_begin_anew() -> None:
    """What the first counts and files is not what the second was planned upon."""
    world = _World()
    world.database.refused = {(_P0, 3)}
    world.run(0)
    world.run(1)
    world.ahead.settle()
    assert [
        *("plan 0 upon Postgres", "stage 0", "plan 1 upon batch 0", "stage 1"),
        *("stage 0", "publish 0", "plan 1 upon Postgres", "stage 1", "publish 1"),
    ] == world.done
    assert [offset for offset in range(20) if offset != 3] == world.offsets
    assert [1, 0] == [entry.restagings for entry in world.database.state.ledger]


def test_rows_are_refused_while_nothing_else_is_at_hand() -> None:
    """Whoever settles stages the batch again, as often as tables refuse."""
    world = _World()
    world.database.refused = {(_P0, 3)}

    def refuse_another() -> None:
        if "stage 0" in world.done:
            world.database.refused = {(_P0, 8)} - world.database.refused

    world.while_staging = refuse_another
    world.run(0)
    assert world.ahead.settle()
    assert [0, 1, 2, 4, 5, 6, 7, 9] == world.offsets
    assert not world.ahead.settle()


def test_a_batch_that_fails_takes_the_next_one_with_it() -> None:
    """It was staged for nothing, and is never begun to be published."""
    world = _World()
    world.run(0)

    def supersede() -> None:
        world.database.new_driver().claim_epoch()

    world.while_staging = supersede
    with pytest.raises(FencedError):
        world.run(1)
    assert "stage 1" == world.done[-1]
    assert 1 == len(world.begun)
    assert [] == world.offsets


def test_the_error_of_the_batch_before_comes_first() -> None:
    """Both have failed; the next one may have failed by it."""
    world = _World()
    world.run(0)

    def fail() -> None:
        world.database.new_driver().claim_epoch()
        raise RetryableError("SPARK_JOB_FAILED", saw="", why="", fix="")

    world.while_staging = fail
    with pytest.raises(FencedError):
        world.run(1)


def test_staging_that_fails_sees_the_batch_before_published() -> None:
    """A driver that starts over would else read what it is just writing."""
    world = _World()
    world.run(0)

    def fail() -> None:
        raise RetryableError("SPARK_JOB_FAILED", saw="", why="", fix="")

    world.while_staging = fail
    with pytest.raises(RetryableError, match="SPARK_JOB_FAILED"):
        world.run(1)
    assert "publish 0" == world.done[-1]
    assert list(range(10)) == world.offsets


def test_a_driver_that_ends_leaves_a_refused_batch_undone() -> None:
    """Its tasks may be gone; the next driver reads it again."""
    world = _World()
    world.database.refused = {(_P0, 3)}
    world.run(0)
    world.ahead.end()
    assert ["plan 0 upon Postgres", "stage 0"] == world.done
    world.ahead.end()
    assert [] == world.offsets
