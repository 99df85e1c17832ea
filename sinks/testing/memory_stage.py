"""A fake of the ``Stage`` port: tasks that stage to a ``MemoryDatabase``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sinks.protocol.identity import Attempt
from sinks.protocol.ports import BatchPlan, RejectedRow, StagedBatch
from sinks.testing.memory_home import MemoryDatabase
from sinks.testing.planned_batches import positions_of, vote_on

#: Tasks that a batch is split into.
TASKS = 2


class MemoryStage:
    """Stages the rows of one driver's batches, split over ``TASKS`` tasks.

    Args:
        database: Where the rows go.
        holds_record: Whether an offset holds a record; the markers of Kafka's
            transactions do not.
        zombies: Whether each task is run twice, the second attempt without a vote,
            as speculation and lost executors do.
    """

    def __init__(
        self,
        database: MemoryDatabase,
        *,
        holds_record: Callable[[int], bool] = lambda _: True,
        zombies: bool = False,
    ) -> None:
        self._database = database
        self._holds_record = holds_record
        self._zombies = zombies
        self._attempts = 0
        #: How often each batch was staged, by Spark's number.
        self.calls: list[int] = []

    def __call__(self, plan: BatchPlan, rejected: Sequence[RejectedRow]) -> StagedBatch:
        self.calls.append(int(plan.key.spark_batch_id))
        dead = {(row.topic_partition, row.offset) for row in rejected}
        records = [p for p in positions_of(plan.ranges) if self._holds_record(p[1])]
        votes = []
        for task in range(TASKS):
            share = records[task::TASKS]
            good = [position for position in share if position not in dead]
            if self._zombies:
                self._database.stage(plan.key.epoch, self._next_attempt(), good)
            attempt = self._next_attempt()
            self._database.stage(plan.key.epoch, attempt, good)
            votes.append(
                vote_on(attempt, good, dead=[p for p in share if p in dead]),
            )
        return StagedBatch(votes=votes, records_read=len(records))

    def _next_attempt(self) -> Attempt:
        self._attempts += 1
        return Attempt(self._attempts)
