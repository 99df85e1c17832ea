"""A verified fake of the ``Home`` port: a home database in memory.

Several ``MemoryHome`` drivers share one ``MemoryDatabase``. It publishes only to append
tables and knows no windows, but it fences, compares, counts and fails like the real
one; ``tallyweir.sinks.testing.conformance`` holds the two to the same behaviour. A
transaction can change what ``DatabaseState`` has, and nothing else.

Nothing here is thread-safe or random: the caller decides what happens, so a seed
reproduces a history.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from tallyweir.sinks.protocol.batch_run import streamed
from tallyweir.sinks.protocol.decisions import PublishDecision, decide_publish
from tallyweir.sinks.protocol.errors import OutcomeUnknownError, RetryableError
from tallyweir.sinks.protocol.identity import BatchKey, Epoch
from tallyweir.sinks.protocol.identity import Sequence as SequenceNumber
from tallyweir.sinks.protocol.in_doubt import EpochClaim, GlobalId, InDoubtFacts
from tallyweir.sinks.protocol.offsets import OffsetRange, TopicPartition
from tallyweir.sinks.protocol.ports import BatchPlan, BatchTerms, Progress
from tallyweir.sinks.protocol.recovery import StoredPosition
from tallyweir.sinks.protocol.votes import BatchTally, EventCounts
from tallyweir.sinks.protocol.watermark import ClockRule, PartitionClock
from tallyweir.sinks.testing.memory_server import (
    LostAnswer,
    MemoryServer,
    MemoryStagingTables,
    lock_not_available,
)
from tallyweir.sinks.testing.planned_batches import KEYED, Position

#: The home database's installation.
INSTALLATION = "0123456789ab"

#: The number of the one pipeline.
PIPELINE_NUMBER = 1


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

    It is never changed in place: a commit replaces the old state by a new one, so a
    state that was kept is a backup.
    """

    #: Epoch to the nonce of the driver that claimed it.
    claims: Mapping[Epoch, str] = field(default_factory=dict)
    positions: Mapping[TopicPartition, StoredPosition] = field(default_factory=dict)
    clocks: Mapping[TopicPartition, PartitionClock] = field(default_factory=dict)
    watermark_us: int | None = None
    ledger: tuple[LedgerEntry, ...] = ()
    #: Branches that batches were committed with, in the order of the batches.
    decided: tuple[GlobalId, ...] = ()
    #: Those branches that were seen committed.
    noted: frozenset[GlobalId] = frozenset()
    tables: Mapping[str, tuple[Position, ...]] = field(default_factory=dict)
    #: The count that a function keeps for each key.
    keyed: Mapping[int, int] = field(default_factory=dict)

    @property
    def visible_through(self) -> int:
        """The newest batch that is noted as committed everywhere, like all before."""
        unnoted = [gid.sequence for gid in self.decided if gid not in self.noted]
        return min(unnoted, default=len(self.ledger) + 1) - 1

    @property
    def newest_epoch(self) -> Epoch:
        return max(self.claims, default=Epoch(0))

    @property
    def newest_claim(self) -> EpochClaim:
        return EpochClaim(
            installation=INSTALLATION,
            pipeline_number=PIPELINE_NUMBER,
            epoch=self.newest_epoch,
            nonce=self.claims.get(self.newest_epoch, "0" * 8),
        )


class MemoryDatabase(MemoryServer):
    """The database that the drivers of one pipeline share.

    Attributes:
        state: The committed state.
        refused: Positions whose rows the result tables refuse.
        answers_to_lose: How the next COMMITs of batches lose their answers.
        ends_lock_holders: Whether the server ends the transaction that holds the
            pipeline's row when another waits for it; otherwise the waiting one gives
            up.
        staging: Staging of the home's own share of batches.
    """

    def __init__(
        self, *, watermark_delay_us: int = 0, idle_timeout_us: int = 60_000_000
    ) -> None:
        super().__init__()
        self.clock_rule = ClockRule(
            delay_us=watermark_delay_us, idle_timeout_us=idle_timeout_us
        )
        self.state = DatabaseState()
        self.refused: set[Position] = set()
        self.answers_to_lose: deque[LostAnswer] = deque()
        self.ends_lock_holders = False
        self.staging = MemoryStagingTables()
        self._lock_holder: MemoryPublishTransaction | None = None
        self._noted_on_disk: frozenset[GlobalId] = frozenset()
        self._drivers = 0

    def new_driver(self) -> MemoryHome:
        """Return another driver's view of the database."""
        self._drivers += 1
        return MemoryHome(self, driver=self._drivers)

    def lock(self, holder: MemoryPublishTransaction | None) -> None:
        """Lock the pipeline's row; None stands for a caller that unlocks it at once.

        Raises:
            RetryableError: Another transaction holds it and does not end.
        """
        self.act_late()
        if self._lock_holder is not None:
            if not self.ends_lock_holders:
                raise lock_not_available(
                    "Another transaction holds the pipeline's row."
                )
            self.happened["lock holder ended"] += 1
            self._lock_holder.end()
        self._lock_holder = holder

    def unlock(self, holder: MemoryPublishTransaction) -> None:
        """Unlock the pipeline's row, if this transaction still holds it."""
        if self._lock_holder is holder:
            self._lock_holder = None

    @property
    def is_locked(self) -> bool:
        """Whether a publish transaction is open or under way."""
        return self._lock_holder is not None

    def act_late(self) -> None:
        """Act on a COMMIT whose client has given up; those who want the lock wait."""
        if self._lock_holder is not None and self._lock_holder.is_committing:
            self._lock_holder.act()

    def crash(self) -> None:
        """Crash the server: staging is UNLOGGED and comes back empty.

        Notes made since the last commit that waited for the disk are lost.
        """
        self._end_transaction()
        self.staging.lose_rows()
        self.state = replace(self.state, noted=self._noted_on_disk)

    def restore(self, state: DatabaseState) -> None:
        """Restore a backup, and drop staging, which no backup holds."""
        self._end_transaction()
        self.commit(state)
        self.staging.drop()

    def commit(self, state: DatabaseState) -> None:
        """Make a transaction's state that of the database, on disk."""
        self.state = state
        self._noted_on_disk = state.noted

    def _end_transaction(self) -> None:
        if self._lock_holder is not None:
            self._lock_holder.end()
            self._lock_holder = None


class MemoryHome:
    """One driver's view of a ``MemoryDatabase``; see ``sinks.protocol.ports.Home``."""

    def __init__(self, database: MemoryDatabase, *, driver: int) -> None:
        self._database = database
        self._nonce = f"{driver:08x}"
        self._claim: EpochClaim | None = None

    @property
    def claim(self) -> EpochClaim:
        assert self._claim is not None, "an epoch is claimed first"
        return self._claim

    def holds(self, claim: EpochClaim) -> bool:
        """Tell whether a claim is this driver's; False before it has claimed."""
        return self._claim == claim

    def claim_epoch(self) -> Epoch:
        database = self._database
        database.arrive("claiming an epoch")
        state = database.state
        epoch = Epoch(state.newest_epoch + 1)
        database.commit(replace(state, claims={**state.claims, epoch: self._nonce}))
        self._claim = database.state.newest_claim
        # These are two transactions, so that the claim itself never waits.
        database.arrive("locking the pipeline")
        database.lock(None)
        database.staging.open(epoch)
        return epoch

    def read_progress(self) -> Progress:
        self._database.arrive("reading the progress")
        state = self._database.state
        return Progress(
            positions=state.positions,
            watermark_us=state.watermark_us,
            last_sequence=SequenceNumber(len(state.ledger)),
            newest_epoch=state.newest_epoch,
            clocks=state.clocks,
        )

    def open_publish_transaction(
        self, plan: BatchPlan, tally: BatchTally, *, restagings: int
    ) -> MemoryPublishTransaction:
        self._database.arrive("opening a publish transaction")
        return MemoryPublishTransaction(
            self._database, plan, tally, restagings=restagings, claim=self.claim
        )

    def read_in_doubt(self, gids: Collection[GlobalId]) -> InDoubtFacts:
        self._database.arrive("reading what is in doubt")
        self._database.lock(None)
        state = self._database.state
        return InDoubtFacts(
            newest=state.newest_claim,
            decided=frozenset(gids) & frozenset(state.decided),
            unresolved=frozenset(state.decided) - state.noted,
        )

    def read_decided(self) -> Mapping[str, GlobalId]:
        self._database.arrive("reading the decisions")
        # Later batches come later, so the newest of each branch stays.
        return {gid.branch: gid for gid in self._database.state.decided}

    def note_committed(self, branches: Collection[GlobalId]) -> None:
        self._database.arrive("noting committed branches")
        state = self._database.state
        known = frozenset(branches) & frozenset(state.decided)
        self._database.state = replace(state, noted=state.noted | known)


class MemoryPublishTransaction:
    """A publish transaction; see ``tallyweir.sinks.protocol.ports.PublishTransaction``.

    It works on the state that was committed when it got the lock. It ends by
    ``commit``, by leaving its block, or when the server ends it.
    """

    def __init__(
        self,
        database: MemoryDatabase,
        plan: BatchPlan,
        tally: BatchTally,
        *,
        restagings: int,
        claim: EpochClaim,
    ) -> None:
        self._database = database
        self._plan = plan
        self._tally = tally
        self._restagings = restagings
        self._ended = False
        #: Whether the server acts on its COMMIT later.
        self.is_committing = False
        self._branches: tuple[GlobalId, ...] = ()
        self._tables: dict[str, tuple[Position, ...]] = {}
        self._keyed: dict[int, int] = {}
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
                last_sequence=SequenceNumber(len(before.ledger)),
                ranges=plan.ranges,
                after_sequence=plan.after_sequence,
            )
        except BaseException:
            database.unlock(self)
            raise
        self._clocks = plan.clocks_after(tally)
        self.terms = BatchTerms(
            sequence=SequenceNumber(len(before.ledger) + 1),
            watermark_before_us=before.watermark_us,
            watermark_after_us=plan.watermark_after(database.clock_rule, tally),
            planned_at_us=plan.planned_at_us,
            decided={gid.branch: gid for gid in before.decided},
        )
        assert tally.fired_through_us in {None, self.terms.watermark_after_us}

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
        self._branches = tuple(branches)
        database = self._database
        lost = database.take_loss(database.answers_to_lose, "COMMIT")
        match lost:
            case LostAnswer.LATE:
                self.is_committing = True
            case LostAnswer.DROPPED:
                self._leave()
            case _:
                self.act()
        if lost is not None:
            raise OutcomeUnknownError(
                "COMMIT_UNKNOWN",
                saw="The answer to COMMIT was lost.",
                why="The batch may be in the tables or not.",
                fix="Publish again.",
            )

    def act(self) -> None:
        """Commit on the server's side."""
        # A claim needs no lock, so there may be new claims since this began.
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
        self._leave()
        self._database.commit(
            replace(
                before,
                positions={**before.positions, **advanced},
                clocks=streamed(self._clocks),
                watermark_us=self.terms.watermark_after_us,
                ledger=(*before.ledger, entry),
                decided=(*before.decided, *self._branches),
                tables=self._tables,
                keyed=self._keyed,
            )
        )

    def end(self) -> None:
        """End the transaction, as the server does if the driver is gone."""
        self._ended = True
        self.is_committing = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.is_committing:
            self._leave()

    def _leave(self) -> None:
        self.end()
        self._database.unlock(self)

    def _move_rows(
        self, plan: BatchPlan, tally: BatchTally
    ) -> dict[str, tuple[Position, ...]]:
        database = self._database
        tables = dict(database.state.tables)
        self._keyed = dict(database.state.keyed)
        for table in tally.staged:
            # A branch moves the rows that are staged under its name.
            if "@" in table:
                continue
            moved = database.staging.move(
                plan.key.epoch, tally, table, database.refused
            )
            if table == KEYED:
                self._keyed.update({key.partition: count for key, count in moved})
            else:
                tables[table] = (*tables.get(table, ()), *moved)
        return tables
