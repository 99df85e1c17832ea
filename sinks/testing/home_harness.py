"""What the suites of the ``Home`` port need: a harness to bind to, and a driver."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pytest

from tallyweir.sinks.protocol.decisions import PublishOutcome
from tallyweir.sinks.protocol.errors import TallyweirError
from tallyweir.sinks.protocol.identity import Attempt
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.ports import BatchPlan, Home, Progress
from tallyweir.sinks.protocol.publisher import Publisher
from tallyweir.sinks.protocol.votes import BatchTally, tally_votes
from tallyweir.sinks.testing.planned_batches import (
    Position,
    plan_batch,
    positions_of,
    vote_on,
)

P0 = TopicPartition("events", 0)
P1 = TopicPartition("events", 1)

#: The harness must configure its pipeline with these values.
WATERMARK_DELAY_US = 3_000_000
IDLE_TIMEOUT_US = 60_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerLine:
    """What the ledger says about one batch."""

    sequence: int
    epoch: int
    committed: int
    checksum: int


class HomeHarness(Protocol):
    """What the cases need besides the port: the tasks' side and a reader's view.

    All drivers belong to one pipeline on one empty home database. Its only output is
    the append table ``RESULTS``, staged under the same name.
    """

    def new_driver(self) -> Home:
        """Return a driver that has not claimed an epoch yet."""
        ...

    def stage(
        self, plan: BatchPlan, attempt: Attempt, rows: Iterable[Position]
    ) -> None:
        """Stage rows of ``RESULTS`` for a batch as one task attempt."""
        ...

    def published(self) -> list[Position]:
        """Read the result table, sorted."""
        ...

    def ledger(self) -> list[LedgerLine]:
        """Read the ledger in the order of its sequence."""
        ...

    def refuse(self, rows: Iterable[Position]) -> None:
        """Make the result table refuse these rows from now on."""
        ...

    def crash_server(self) -> None:
        """Empty the staging tables, like a crash of the server."""
        ...

    def make_idle(self, topic_partition: TopicPartition) -> None:
        """Pretend that a partition's last event came before the idle timeout."""
        ...

    def undo_newest_claim(self) -> None:
        """Take the newest claim back, like a restore of a backup."""
        ...

    def lose_next_answer(self, *, committed: bool) -> None:
        """Lose the answer to a driver's next COMMIT, which takes effect or not."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Everything that a publish may change."""

    progress: Progress
    rows: list[Position]
    ledger: list[LedgerLine]


class HomeDriver:
    """A driver that has claimed its epoch, with its tasks."""

    def __init__(self, harness: HomeHarness) -> None:
        self._harness = harness
        self.home = harness.new_driver()
        self.epoch = self.home.claim_epoch()
        self._publisher = Publisher(self.home)
        self._batches = 0
        self._attempts = 0

    def plan(self, lengths: Mapping[TopicPartition, int]) -> BatchPlan:
        """Plan the next batch; without lengths it is a tick."""
        plan = plan_batch(
            self.home.read_progress(),
            lengths,
            epoch=self.epoch,
            spark_batch_id=self._batches if lengths else None,
        )
        self._batches += 1
        return plan

    def stage(
        self, plan: BatchPlan, records: Sequence[Position] | None = None
    ) -> BatchTally:
        """Stage and vote; by default each offset of the plan holds a record."""
        if records is None:
            records = positions_of(plan.ranges)
        self._attempts += 1
        self._harness.stage(plan, Attempt(self._attempts), records)
        votes = [vote_on(self._attempts, records)]
        return tally_votes(votes, plan.ranges, records_read=len(records))

    def publish(self, plan: BatchPlan, tally: BatchTally) -> PublishOutcome:
        return self._publisher.publish(plan, tally, restagings=0)

    def run(self, lengths: Mapping[TopicPartition, int]) -> PublishOutcome:
        plan = self.plan(lengths)
        return self.publish(plan, self.stage(plan))

    def see(self) -> Seen:
        return Seen(
            progress=self.home.read_progress(),
            rows=self._harness.published(),
            ledger=self._harness.ledger(),
        )


def refused(
    harness: HomeHarness, driver: HomeDriver, plan: BatchPlan, tally: BatchTally
) -> TallyweirError:
    """Publish, expecting an error and no change that a reader could see."""
    witness = harness.new_driver()
    before = witness.read_progress(), harness.published(), harness.ledger()
    with pytest.raises(TallyweirError) as raised:
        driver.publish(plan, tally)
    assert before == (witness.read_progress(), harness.published(), harness.ledger())
    return raised.value
