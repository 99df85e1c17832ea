"""One driver's process: its knowledge dies with it."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from tallyweir.sinks import faultpoints
from tallyweir.sinks.faultpoints import FaultPoint
from tallyweir.sinks.protocol.coordinator import (
    Coordinator,
    StageAhead,
    VotedBatch,
    find_basis,
)
from tallyweir.sinks.protocol.decisions import check_epoch
from tallyweir.sinks.protocol.errors import TallyweirError
from tallyweir.sinks.protocol.identity import Attempt
from tallyweir.sinks.protocol.offsets import OffsetRange, TopicPartition
from tallyweir.sinks.protocol.ports import BatchPlan, RowsRejectedError
from tallyweir.sinks.protocol.publisher import Publisher
from tallyweir.sinks.testing.memory_participant import MemoryParticipant
from tallyweir.sinks.testing.memory_stage import MemoryStage
from tallyweir.sinks.testing.planned_batches import plan_batch, plan_upon
from tallyweir.sinks.testing.simulation.world import LOG_END, World

#: How often a driver ticks instead of reading on.
_TICKS_SHARE = 0.2


class DriverKilledError(BaseException):
    """The process died."""


class _Publishing:
    """A batch that is published in one step during the driver's other work.

    Production has a thread for it. Here it ends when the schedule says so: as soon as
    it was begun, during the staging of the next batch, or when the driver waits for it.
    """

    def __init__(self, publish: Callable[[], None]) -> None:
        self._publish = publish
        self._began = False
        self._error: Exception | None = None

    def go_on(self) -> None:
        """Publish, unless that has already begun; keep its error."""
        if self._began:
            return
        self._began = True
        try:
            self._publish()
        except (TallyweirError, RowsRejectedError) as error:
            self._error = error

    def done(self) -> bool:
        return self._began

    def result(self) -> None:
        self.go_on()
        if self._error is not None:
            raise self._error


class SimulatedDriver:
    """Does what the production driver does, in its order.

    Args:
        world: Its databases and its topic.
        chance: Decides how many offsets each batch covers.
        batch_length: A batch covers fewer offsets of a partition than this.
    """

    def __init__(
        self, world: World, chance: random.Random, *, batch_length: int
    ) -> None:
        self._world = world
        self._chance = chance
        self._batch_length = batch_length
        self.home = world.home.new_driver()
        self._participants: list[MemoryParticipant] = []
        self._stage = MemoryStage(
            world.home,
            others={name: one.staging for name, one in world.others.items()},
            branch_of=world.branch_of,
            holds_record=world.holds_record,
            name_attempt=self._name_attempt,
            zombies=chance.random() < 0.3,  # noqa: PLR2004 - some drivers have them
        )
        self._batches = 0
        self._publishing: _Publishing | None = None

    def start(self) -> None:
        """Claim an epoch and finish what others have left in doubt.

        Raises:
            TallyweirError: As claiming and settling do.
        """
        self.epoch = self.home.claim_epoch()
        self._participants = [
            MemoryParticipant(database, self.home.claim)
            for database in self._world.others.values()
        ]
        self._publisher = Publisher(self.home, self._participants)
        self._publisher.start()
        self._coordinator = Coordinator(self._publisher, self._stage.stage_keys)
        self._ahead = StageAhead(self._coordinator, self._begin)
        # Spark plans from its own memory, not from Postgres.
        self._next = {
            tp: position.next_offset
            for tp, position in self.home.read_progress().positions.items()
        }

    def run_batch(self) -> None:
        """Run the next batch, or a tick, whatever the other driver did.

        Raises:
            TallyweirError: As ``Coordinator.run_batch`` does.
        """
        if self._chance.random() < _TICKS_SHARE:
            self._run_tick()
            return
        lengths = self._choose_lengths()
        if not any(lengths.values()):
            self._ahead.settle()
            return
        covered = self._cover(lengths)
        self._ahead.run_batch(partial(self._plan, covered), self._stage, self._publish)

    def _run_tick(self) -> None:
        self._ahead.settle()
        with faultpoints.making(FaultPoint.PLANNED):
            progress = self.home.read_progress()
            check_epoch(self.epoch, progress.newest_epoch)
            plan = plan_batch(progress, {}, epoch=self.epoch, spark_batch_id=None)
        self._coordinator.run_tick(plan)
        self._world.happened["tick"] += 1
        with faultpoints.making(FaultPoint.SEALED):
            self._publisher.sweep()

    def run_zombie_task(self) -> None:
        """Let a task that Spark has given up stage rows, without a vote.

        Raises:
            FatalError: Its staging tables are gone.
        """
        tp = self._chance.choice(list(LOG_END))
        rows = [(tp, offset) for offset in range(LOG_END[tp])]
        share = [position for position in rows if self._world.holds_record(position)]
        self._stage.copy_without_vote(self.epoch, share[:4])

    @property
    def holds_newest_claim(self) -> bool:
        """Whether no driver has taken over and no restore has removed its claim."""
        return self.home.holds(self._world.home.state.newest_claim)

    def work(self) -> None:
        """Let its threads do the work that they were given."""
        if self._publishing is not None and not self._publishing.done():
            self._world.happened["batch published beside other work"] += 1
            self._publishing.go_on()
        self.work_late()

    def work_late(self) -> None:
        """Let servers run the statements that its threads had sent before they died."""
        for participant in self._participants:
            participant.work()

    def _name_attempt(self, number: int) -> Attempt:
        """Name an attempt; every driver counts from 1, as Spark does from 0."""
        return self.home.claim.attempt(number)

    def _choose_lengths(self) -> dict[TopicPartition, int]:
        return {
            tp: min(
                self._chance.randrange(self._batch_length), end - self._next.get(tp, 0)
            )
            for tp, end in LOG_END.items()
        }

    def _cover(self, lengths: dict[TopicPartition, int]) -> list[OffsetRange]:
        """Fix the offsets of the next batch, as Spark does before it plans."""
        ranges = [
            OffsetRange(
                topic_partition=tp,
                from_offset=self._next.get(tp, 0),
                until_offset=self._next.get(tp, 0) + length,
            )
            for tp, length in lengths.items()
        ]
        self._next = {r.topic_partition: r.until_offset for r in ranges}
        self._batches += 1
        return ranges

    def _plan(
        self, ranges: list[OffsetRange], former: VotedBatch | None
    ) -> BatchPlan | None:
        with faultpoints.making(FaultPoint.PLANNED):
            basis = find_basis(self.home, self._world.home.clock_rule, former)
            return plan_upon(
                basis, ranges, epoch=self.epoch, spark_batch_id=self._batches
            )

    def _begin(self, publish: Callable[[], None]) -> _Publishing:
        self._publishing = _Publishing(publish)
        return self._publishing

    def _publish(self, voted: VotedBatch) -> None:
        result = self._coordinator.publish(voted)
        if result.restagings:
            self._world.happened["batch staged again without refused rows"] += 1
        with faultpoints.making(FaultPoint.SEALED):
            self._publisher.sweep()
