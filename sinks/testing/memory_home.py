"""A verified fake of the ``Home`` port: a home database in memory.

Several ``MemoryHome`` drivers share one ``MemoryDatabase``. It publishes to append
tables only and knows no windows, but fences, compares, counts and fails like the
real one; ``sinks.testing.conformance`` holds the two to the same behaviour.

Nothing here is thread-safe or random: who calls decides what happens, and a seed
therefore reproduces a history.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from types import TracebackType
from typing import Self

from sinks.protocol.decisions import PublishDecision, decide_publish
from sinks.protocol.errors import FatalError, OutcomeUnknownError, RetryableError
from sinks.protocol.identity import Attempt, BatchKey, Epoch
from sinks.protocol.identity import Sequence as SequenceNumber
from sinks.protocol.in_doubt import Claim, GlobalId, InDoubtFacts
from sinks.protocol.offsets import OffsetRange, TopicPartition
from sinks.protocol.ports import (
    BatchPlan,
    BatchTerms,
    Progress,
    RejectedRow,
    RowsRejectedError,
)
from sinks.protocol.recovery import StoredPosition
from sinks.protocol.votes import BatchTally, EventCounts
from sinks.protocol.watermark import PartitionClock, advance_watermark
from sinks.testing.planned_batches import RESULTS, Position

#: The home database's installation.
INSTALLATION = "0123456789ab"

#: The number of the one pipeline.
PIPELINE_NUMBER = 1


class LostAnswer(Enum):
    """What had become of a COMMIT whose answer never arrived."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled_back"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """One published batch."""

    sequence: SequenceNumber
    key: BatchKey
    ranges: tuple[OffsetRange, ...]
    counts: EventCounts
    checksum: int
    watermark_before_us: int | None
    watermark_after_us: int | None
    restagings: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseState:
    """Everything that a transaction of the home database can change.

    Never changed in place: a commit puts a new state where the old one was, so that
    a state that was kept is a backup.
    """

    #: Epoch to the nonce of the driver that claimed it.
    claims: Mapping[Epoch, str] = field(default_factory=dict)
    positions: Mapping[TopicPartition, StoredPosition] = field(default_factory=dict)
    clocks: Mapping[TopicPartition, PartitionClock] = field(default_factory=dict)
    watermark_us: int | None = None
    ledger: tuple[LedgerEntry, ...] = ()
    #: Branches that batches were committed with, in the order of the batches.
    decided: tuple[GlobalId, ...] = ()
    #: Those of them that were seen committed.
    noted: frozenset[GlobalId] = frozenset()
    tables: Mapping[str, tuple[Position, ...]] = field(default_factory=dict)

    @property
    def newest_epoch(self) -> Epoch:
        return max(self.claims, default=Epoch(0))

    @property
    def newest_claim(self) -> Claim:
        return Claim(
            installation=INSTALLATION,
            pipeline_number=PIPELINE_NUMBER,
            epoch=self.newest_epoch,
            nonce=self.claims.get(self.newest_epoch, "0" * 8),
        )


class MemoryDatabase:
    """The database that the drivers of one pipeline share.

    Attributes:
        state: What is committed.
        now_us: The server's clock; tests move it.
        refused: Positions whose rows the result tables refuse.
        answers_to_lose: What the next COMMITs shall do instead of answering.
        ends_lock_holders: Whether somebody who waits for the pipeline's row outlasts
            who holds it, whose transaction the server then ends; else it is the one
            who waits that gives up.
    """

    def __init__(
        self, *, watermark_delay_us: int = 0, idle_timeout_us: int = 60_000_000
    ) -> None:
        self.watermark_delay_us = watermark_delay_us
        self.idle_timeout_us = idle_timeout_us
        self.state = DatabaseState()
        self.now_us = 0
        self.refused: set[Position] = set()
        self.answers_to_lose: deque[LostAnswer] = deque()
        self.ends_lock_holders = False
        self._lock_holder: MemoryPublication | None = None
        self._staging: dict[Epoch, dict[str, list[tuple[Attempt, Position]]]] = {}
        self._drivers = 0

    def new_driver(self) -> MemoryHome:
        """Return another driver's view of the database."""
        self._drivers += 1
        return MemoryHome(self, driver=self._drivers)

    def lock(self, holder: MemoryPublication | None) -> None:
        """Lock the pipeline's row; None stands for who lets go of it at once.

        Raises:
            RetryableError: Another transaction holds it and does not end.
        """
        if self._lock_holder is not None:
            if not self.ends_lock_holders:
                raise RetryableError(
                    "POSTGRES_UNAVAILABLE",
                    saw="Another transaction holds the pipeline's row.",
                    why="Two may not publish at a time.",
                    fix="Nothing to do: it is tried again.",
                )
            self._lock_holder.end()
        self._lock_holder = holder

    def unlock(self, holder: MemoryPublication) -> None:
        """Let go of the pipeline's row, if it is still this transaction's."""
        if self._lock_holder is holder:
            self._lock_holder = None

    def stage(
        self,
        epoch: Epoch,
        attempt: Attempt,
        rows: Iterable[Position],
        *,
        table: str = RESULTS,
    ) -> None:
        """Stage rows like a task of an epoch's driver.

        Raises:
            FatalError: A newer driver has dropped the epoch's staging.
        """
        if epoch not in self._staging:
            raise FatalError(
                "STAGING_GONE",
                saw=f"Epoch {epoch} has no staging tables.",
                why="A newer driver has dropped them.",
                fix="Nothing to do: the newer driver works.",
            )
        staged = self._staging[epoch].setdefault(table, [])
        staged.extend((attempt, position) for position in rows)

    def open_staging(self, epoch: Epoch) -> None:
        """Make an epoch's staging, empty; that of every other epoch is dropped."""
        self._staging = {epoch: {}}

    def staged(
        self, epoch: Epoch, attempts: Sequence[Attempt], table: str
    ) -> list[Position]:
        """Return what some attempts have staged for a table."""
        rows = self._staging.get(epoch, {}).get(table, [])
        return [position for attempt, position in rows if attempt in attempts]

    def crash(self) -> None:
        """Crash the server: staging is UNLOGGED and comes back empty."""
        self._end_transaction()
        for tables in self._staging.values():
            tables.clear()

    def restore(self, state: DatabaseState) -> None:
        """Put a backup back, and drop staging, which no backup holds."""
        self._end_transaction()
        self.state = state
        self._staging = {}

    def _end_transaction(self) -> None:
        if self._lock_holder is not None:
            self._lock_holder.end()
            self._lock_holder = None

    def commit(self, state: DatabaseState) -> None:
        """Make a transaction's state the database's, or lose the answer.

        Raises:
            OutcomeUnknownError: The next answer was to be lost.
        """
        lost = self.answers_to_lose.popleft() if self.answers_to_lose else None
        if lost is not LostAnswer.ROLLED_BACK:
            self.state = state
        if lost is not None:
            raise OutcomeUnknownError(
                "COMMIT_UNKNOWN",
                saw="The answer to COMMIT was lost.",
                why="The batch may be in the tables or not.",
                fix="Publish again.",
            )


class MemoryHome:
    """One driver's view of a ``MemoryDatabase``; see ``sinks.protocol.ports.Home``."""

    def __init__(self, database: MemoryDatabase, *, driver: int) -> None:
        self._database = database
        self._nonce = f"{driver:08x}"
        self._claim: Claim | None = None

    @property
    def claim(self) -> Claim:
        assert self._claim is not None, "an epoch is claimed first"
        return self._claim

    def claim_epoch(self) -> Epoch:
        state = self._database.state
        epoch = Epoch(state.newest_epoch + 1)
        self._database.state = replace(
            state, claims={**state.claims, epoch: self._nonce}
        )
        self._claim = self._database.state.newest_claim
        self._database.lock(None)
        self._database.open_staging(epoch)
        return epoch

    def read_progress(self) -> Progress:
        state = self._database.state
        return Progress(
            positions=state.positions,
            watermark_us=state.watermark_us,
            last_sequence=SequenceNumber(len(state.ledger)),
            newest_epoch=state.newest_epoch,
        )

    def open_publication(
        self, plan: BatchPlan, tally: BatchTally, *, restagings: int
    ) -> MemoryPublication:
        return MemoryPublication(
            self._database, plan, tally, restagings=restagings, claim=self.claim
        )

    def read_in_doubt(self, gids: Collection[GlobalId]) -> InDoubtFacts:
        self._database.lock(None)
        state = self._database.state
        return InDoubtFacts(
            newest=state.newest_claim,
            decided=frozenset(gids) & frozenset(state.decided),
            unresolved=frozenset(state.decided) - state.noted,
        )

    def read_decided(self) -> Mapping[str, GlobalId]:
        # Later batches come later, so the newest of each branch is what stays.
        return {gid.branch: gid for gid in self._database.state.decided}

    def note_committed(self, branches: Collection[GlobalId]) -> None:
        state = self._database.state
        known = frozenset(branches) & frozenset(state.decided)
        self._database.state = replace(state, noted=state.noted | known)


class MemoryPublication:
    """A publish transaction; see ``sinks.protocol.ports.Publication``.

    It works on what was committed when it got the lock, and ends by ``commit``, by
    leaving its block, or by the server's hand.
    """

    def __init__(
        self,
        database: MemoryDatabase,
        plan: BatchPlan,
        tally: BatchTally,
        *,
        restagings: int,
        claim: Claim,
    ) -> None:
        self._database = database
        self._plan = plan
        self._tally = tally
        self._restagings = restagings
        self._ended = False
        self._tables: dict[str, tuple[Position, ...]] = {}
        database.lock(self)
        before = database.state
        try:
            self.decision = decide_publish(
                key=plan.key,
                newest_epoch=before.newest_epoch,
                claim_kept=before.claims.get(plan.key.epoch) == claim.nonce,
                stored={
                    topic_partition: position.next_offset
                    for topic_partition, position in before.positions.items()
                },
                ranges=plan.ranges,
            )
        except BaseException:
            database.unlock(self)
            raise
        self._clocks = self._clocks_after(tally)
        self.terms = BatchTerms(
            sequence=SequenceNumber(len(before.ledger) + 1),
            watermark_before_us=before.watermark_us,
            watermark_after_us=advance_watermark(
                before.watermark_us,
                self._clocks.values(),
                delay_us=database.watermark_delay_us,
                idle_timeout_us=database.idle_timeout_us,
                now_us=database.now_us,
            ),
            decided={gid.branch: gid for gid in before.decided},
        )

    def move_rows(self) -> None:
        self.keep_alive()
        self._tables = self._move_rows(self._plan, self._tally)

    def keep_alive(self) -> None:
        if self._ended:
            raise RetryableError(
                "POSTGRES_UNAVAILABLE",
                saw="The server has ended the transaction.",
                why="Its driver was paused, or the server crashed.",
                fix="Nothing to do: the batch is staged again.",
            )

    def commit(self, branches: Sequence[GlobalId]) -> None:
        self.keep_alive()
        assert self.decision is PublishDecision.PUBLISH
        # A claim needs no lock, so there may be new ones.
        before = self._database.state
        entry = LedgerEntry(
            sequence=self.terms.sequence,
            key=self._plan.key,
            ranges=tuple(self._plan.ranges),
            counts=self._tally.counts,
            checksum=self._tally.checksum,
            watermark_before_us=self.terms.watermark_before_us,
            watermark_after_us=self.terms.watermark_after_us,
            restagings=self._restagings,
        )
        advanced = {
            planned.topic_partition: StoredPosition(
                topic_id=self._plan.topic_ids[planned.topic_partition.topic],
                next_offset=planned.until_offset,
            )
            for planned in self._plan.ranges
        }
        self.end()
        self._database.unlock(self)
        self._database.commit(
            replace(
                before,
                positions={**before.positions, **advanced},
                clocks=self._clocks,
                watermark_us=self.terms.watermark_after_us,
                ledger=(*before.ledger, entry),
                decided=(*before.decided, *branches),
                tables=self._tables,
            )
        )

    def end(self) -> None:
        """End the transaction, as the server does with one whose driver is gone."""
        self._ended = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()
        self._database.unlock(self)

    def _move_rows(
        self, plan: BatchPlan, tally: BatchTally
    ) -> dict[str, tuple[Position, ...]]:
        database = self._database
        tables = dict(database.state.tables)
        for table, voted in tally.staged.items():
            if "@" in table:
                # A branch in another database moves these.
                continue
            moved = database.staged(plan.key.epoch, tally.attempts, table)
            if len(moved) != voted:
                raise RetryableError(
                    "STAGED_ROWS_MISSING",
                    saw=f"The tasks voted for {voted} rows of {table}; staging holds "
                    f"{len(moved)}.",
                    why="A crash of the server empties staging tables.",
                    fix="Nothing to do: the batch is staged again.",
                )
            refused = [position for position in moved if position in database.refused]
            if refused:
                raise RowsRejectedError(
                    [
                        RejectedRow(
                            topic_partition=topic_partition,
                            offset=offset,
                            detail=f"Table {table} refused the row.",
                        )
                        for topic_partition, offset in refused
                    ]
                )
            tables[table] = (*tables.get(table, ()), *moved)
        return tables

    def _clocks_after(self, tally: BatchTally) -> dict[TopicPartition, PartitionClock]:
        clocks = dict(self._database.state.clocks)
        for topic_partition, seen in tally.partitions.items():
            if seen.event_time_max_us is None:
                continue
            former = clocks.get(topic_partition)
            former_us = former.event_time_max_us if former else None
            clocks[topic_partition] = PartitionClock(
                event_time_max_us=max(
                    seen.event_time_max_us,
                    seen.event_time_max_us if former_us is None else former_us,
                ),
                active_at_us=self._database.now_us,
            )
        return clocks
