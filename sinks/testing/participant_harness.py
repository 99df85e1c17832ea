"""What the suite of the ``Participant`` port needs: a harness, and a driver on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from tallyweir.sinks.protocol.decisions import PublishOutcome
from tallyweir.sinks.protocol.identity import Attempt
from tallyweir.sinks.protocol.in_doubt import GlobalId
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.ports import (
    BatchPlan,
    BranchOrder,
    Home,
    Participant,
    PublishTransaction,
)
from tallyweir.sinks.protocol.publisher import Publisher
from tallyweir.sinks.protocol.votes import BatchTally, tally_votes
from tallyweir.sinks.testing.planned_batches import (
    HOME,
    Position,
    plan_batch,
    positions_of,
    vote_on,
)

#: The one partition of the topic.
EVENTS = TopicPartition("events", 0)

#: The participant.
OTHER = "billing"

#: The branches that publish rows of ``RESULTS``, in turn by offset.
BRANCHES = (HOME, f"{OTHER}.0", f"{OTHER}.1")


def branch_of(position: Position) -> str:
    """Route a record: every third offset stays at home."""
    return BRANCHES[position[1] % len(BRANCHES)]


class Lossy(Enum):
    """Statements whose answer a harness can lose."""

    COMMIT = "commit"
    PREPARE = "prepare"
    COMMIT_PREPARED = "commit_prepared"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverPorts:
    """One driver's views of the databases; its home has claimed an epoch."""

    home: Home
    participant: Participant


class ParticipantHarness(Protocol):
    """What the cases need besides the ports: the tasks' side and a reader's view.

    All drivers belong to one pipeline on an empty home database and an empty ``OTHER``.
    Its only output is the append table ``RESULTS``, published by ``BRANCHES``.
    """

    def new_driver(self) -> DriverPorts:
        """Return another driver, whose participant is not opened yet."""
        ...

    def stage(
        self, plan: BatchPlan, attempt: Attempt, branch: str, rows: Iterable[Position]
    ) -> None:
        """Stage one branch's rows of ``RESULTS`` for a batch as one task attempt."""
        ...

    def published(self, database: str) -> list[int]:
        """Read the offsets in a database's result table, sorted."""
        ...

    def visible_through(self) -> int:
        """Read the newest batch that is noted as committed everywhere."""
        ...

    def refuse(self, offsets: Iterable[int]) -> None:
        """Make the result table of ``OTHER`` refuse these rows from now on."""
        ...

    def empty_staging(self) -> None:
        """Empty the staging tables of ``OTHER``, like a crash of its server."""
        ...

    def forget_newest_batch(self, database: str) -> None:
        """Put a database back to before its newest batch, like a restore."""
        ...

    def lose_next_answer(self, statement: Lossy, *, acted: bool) -> None:
        """Lose the answer to a driver's next statement, which takes effect or not."""
        ...

    def await_loss(self) -> None:
        """Wait until the server has acted on the lost statement, or dropped it."""
        ...


class BranchDriver:
    """A driver that has claimed its epoch, with its tasks."""

    def __init__(self, harness: ParticipantHarness) -> None:
        self._harness = harness
        ports = harness.new_driver()
        self.home = ports.home
        self.participant = ports.participant
        self.publisher = Publisher(self.home, [self.participant])
        self._batches = 0
        self._attempts = 0
        self._tries = 0

    @classmethod
    def started(cls, harness: ParticipantHarness) -> BranchDriver:
        """Return a driver that has settled what others have left in doubt."""
        driver = cls(harness)
        driver.publisher.start()
        return driver

    def plan(self, length: int = 3) -> BatchPlan:
        self._batches += 1
        return plan_batch(
            self.home.read_progress(),
            {EVENTS: length},
            epoch=self.home.claim.epoch,
            spark_batch_id=self._batches,
        )

    def stage(self, plan: BatchPlan) -> BatchTally:
        """Stage each offset of a plan in its database, as one attempt, and vote."""
        self._attempts += 1
        attempt = Attempt(self._attempts)
        rows = positions_of(plan.ranges)
        for branch in BRANCHES:
            share = [position for position in rows if branch_of(position) == branch]
            if share:
                self._harness.stage(plan, attempt, branch, share)
        vote = vote_on(self._attempts, rows, branch_of=branch_of)
        return tally_votes([vote], plan.ranges, records_read=len(rows))

    def publish(self, plan: BatchPlan, tally: BatchTally) -> PublishOutcome:
        return self.publisher.publish(plan, tally, restagings=0)

    def run(self, length: int = 3) -> PublishOutcome:
        plan = self.plan(length)
        return self.publish(plan, self.stage(plan))

    @contextmanager
    def publish_transaction(
        self,
    ) -> Iterator[tuple[PublishTransaction, Mapping[str, BranchOrder]]]:
        """Open the publish transaction of the next batch, with its branches' orders."""
        plan = self.plan()
        tally = self.stage(plan)
        with self.home.open_publish_transaction(plan, tally, restagings=0) as opened:
            orders = {
                branch: self.order(opened, tally, branch)
                for branch in self.participant.touched(tally, opened.terms)
            }
            yield opened, orders

    def order(
        self, transaction: PublishTransaction, tally: BatchTally, branch: str
    ) -> BranchOrder:
        """Make an order with a global id of its own."""
        self._tries += 1
        gid = GlobalId(
            claim=self.home.claim,
            sequence=transaction.terms.sequence,
            branch=branch,
            attempt=1_000 + self._tries,
        )
        return BranchOrder(gid=gid, tally=tally, terms=transaction.terms)

    def prepare(self, *orders: BranchOrder) -> None:
        """Prepare branches and wait for each."""
        for order in orders:
            self.participant.begin_prepare(order)
        for order in orders:
            self.participant.await_prepared(order.gid, meanwhile=_nothing)

    def prepare_batch(self, *, decide: bool) -> list[GlobalId]:
        """Leave the next batch in doubt, decided or not; return its branches."""
        with self.publish_transaction() as (transaction, orders):
            self.prepare(*orders.values())
            gids = [order.gid for order in orders.values()]
            if decide:
                transaction.move_rows()
                transaction.commit(gids)
        return gids


def _nothing() -> None:
    """Do nothing to show that the driver lives: the cases do not wait for long."""
