"""A fake of the ``Stage`` port: tasks that stage to databases in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from tallyweir.sinks.protocol.identity import Attempt, Epoch
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.ports import BatchPlan, Rejection, StagedBatch, StagedKeys
from tallyweir.sinks.protocol.votes import BatchTally, KeyedVote
from tallyweir.sinks.testing.memory_home import MemoryDatabase
from tallyweir.sinks.testing.memory_server import MemoryStagingTables
from tallyweir.sinks.testing.planned_batches import (
    HOME,
    KEYED,
    RESULTS,
    TICKS,
    Position,
    in_home,
    key_of,
    positions_of,
    staged_for,
    vote_on,
)

#: Tasks that a batch is split into.
TASKS = 2


class MemoryStage:
    """Stages the rows of one driver's batches, split over ``TASKS`` tasks.

    Args:
        database: The home database.
        others: Staging of the other databases, by their names.
        branch_of: Returns the branch that publishes a record.
        holds_record: Tells whether a position holds a record; markers of Kafka's
            transactions are no records.
        name_attempt: Names an attempt by its number, under the driver's claim.
        zombies: Whether each task runs twice, once without a vote, as with speculation
            or lost executors.
    """

    def __init__(  # noqa: PLR0913 - keyword-only; a stage has these
        self,
        database: MemoryDatabase,
        *,
        others: Mapping[str, MemoryStagingTables] | None = None,
        branch_of: Callable[[Position], str] = in_home,
        holds_record: Callable[[Position], bool] = lambda _: True,
        name_attempt: Callable[[int], Attempt] = Attempt,
        zombies: bool = False,
    ) -> None:
        self._database = database
        self._staging = {HOME: database.staging, **(others or {})}
        self._branch_of = branch_of
        self._holds_record = holds_record
        self._name_attempt = name_attempt
        self._zombies = zombies
        self._attempts = 0
        #: How often each batch was staged, by Spark's number.
        self.calls: list[int] = []

    def __call__(self, plan: BatchPlan, rejected: Sequence[Rejection]) -> StagedBatch:
        assert plan.key.spark_batch_id is not None, "a tick stages no events"
        self.calls.append(int(plan.key.spark_batch_id))
        dead = {row.key for row in rejected}
        records = [p for p in positions_of(plan.ranges) if self._holds_record(p)]
        votes = []
        for task in range(TASKS):
            share = records[task::TASKS]
            good = [position for position in share if position not in dead]
            if self._zombies:
                self.copy_without_vote(plan.key.epoch, good)
            attempt = self._next_attempt()
            self._copy(plan.key.epoch, attempt, good)
            votes.append(
                vote_on(
                    attempt,
                    good,
                    dead=[p for p in share if p in dead],
                    branch_of=self._branch_of,
                )
            )
        return StagedBatch(votes=votes, records_read=len(records))

    def stage_keys(self, plan: BatchPlan, tally: BatchTally) -> StagedKeys:
        """Run phase 2b of a function that counts records by their key, and ticks.

        If it ran twice, it would count its records twice.
        """
        counts = Counter(self._database.state.keyed)
        records = self._database.staging.voted(plan.key.epoch, tally, RESULTS)
        touched = [key_of(position) for position in records]
        counts.update(touched if plan.ranges else [TICKS])
        rows = [
            (TopicPartition(KEYED, key), counts[key])
            for key in sorted({*touched} if plan.ranges else {TICKS})
        ]
        if self._zombies:
            garbage = [(key, count + 1) for key, count in rows]
            self._stage_keys(plan.key.epoch, garbage)
        attempt = self._stage_keys(plan.key.epoch, rows)
        vote = KeyedVote(
            attempt=attempt,
            consumed={RESULTS: len(records)},
            staged={KEYED: len(rows)},
            rows={},
        )
        return StagedKeys(
            votes=[vote],
            watermark_us=self._database.clock_rule.watermark_after(
                plan.watermark_us,
                plan.clocks_after(tally).values(),
                now_us=plan.planned_at_us,
            ),
        )

    def _stage_keys(self, epoch: Epoch, rows: Sequence[Position]) -> Attempt:
        attempt = self._next_attempt()
        self._database.staging.stage(epoch, attempt, rows, KEYED)
        return attempt

    def copy_without_vote(self, epoch: Epoch, rows: Sequence[Position]) -> None:
        """Stage rows as an attempt that never votes.

        Raises:
            FatalError: A newer driver has dropped the epoch's staging.
        """
        self._copy(epoch, self._next_attempt(), rows)

    def _copy(self, epoch: Epoch, attempt: Attempt, rows: Sequence[Position]) -> None:
        """Stage rows as one attempt, each in the database of its branch."""
        shares: dict[str, list[Position]] = {}
        for position in rows:
            shares.setdefault(self._branch_of(position), []).append(position)
        for branch, share in shares.items():
            staging = self._staging[branch.rpartition(".")[0] or HOME]
            staging.stage(epoch, attempt, share, staged_for(branch))

    def _next_attempt(self) -> Attempt:
        self._attempts += 1
        return self._name_attempt(self._attempts)
