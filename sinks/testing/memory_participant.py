"""A verified fake of the ``Participant`` port: databases in memory with branches.

Several drivers and resolvers share one ``MemoryParticipantDatabase``. Like the fake
home it publishes only to append tables. Instead of Postgres' locks, it locks the
marker's key, which every branch of a batch inserts, until the transaction ends.

Nothing here is thread-safe or random: the caller decides what happens. A branch that
was begun runs when a caller waits for it, or when ``MemoryParticipant.work`` is called,
as if its thread had got that far.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tallyweir.sinks.protocol.errors import FatalError, RetryableError
from tallyweir.sinks.protocol.identity import Sequence as SequenceNumber
from tallyweir.sinks.protocol.in_doubt import EpochClaim, GlobalId, compare_history
from tallyweir.sinks.protocol.ports import BatchTerms, BranchOrder, RowsRejectedError
from tallyweir.sinks.protocol.votes import BatchTally
from tallyweir.sinks.testing.memory_server import (
    LostAnswer,
    MemoryServer,
    MemoryStagingTables,
    lock_not_available,
    no_answer,
)
from tallyweir.sinks.testing.planned_batches import Position, staged_for

#: The unique key of a branch's marker.
MarkerKey = tuple[str, int, str, SequenceNumber]


def marker_key(gid: GlobalId) -> MarkerKey:
    """Return the key of the marker that a branch inserts."""
    claim = gid.claim
    return claim.installation, claim.pipeline_number, gid.branch, gid.sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class ParticipantState:
    """Everything that survives a crash of the server, including prepared branches.

    It is never changed in place, so a state that was kept is a backup.
    """

    rows: tuple[Position, ...] = ()
    markers: Mapping[MarkerKey, GlobalId] = field(default_factory=dict)
    #: Prepared branches and the rows that they will insert.
    prepared: Mapping[GlobalId, tuple[Position, ...]] = field(default_factory=dict)

    def with_committed(self, gid: GlobalId) -> ParticipantState:
        """Return the state after COMMIT PREPARED."""
        return replace(
            self.with_rolled_back(gid),
            rows=(*self.rows, *self.prepared[gid]),
            markers={**self.markers, marker_key(gid): gid},
        )

    def with_rolled_back(self, gid: GlobalId) -> ParticipantState:
        """Return the state after ROLLBACK PREPARED."""
        prepared = dict(self.prepared)
        del prepared[gid]
        return replace(self, prepared=prepared)


class MemoryParticipantDatabase(MemoryServer):
    """A database with some branches of one pipeline.

    Attributes:
        name: Its name in the pipeline.
        branches: The branches that it holds.
        state: The state on its disk.
        staging: Rows that tasks have staged there.
        refused: Positions whose rows the result table refuses.
        prepares_to_lose: How the next PREPARE TRANSACTIONs lose their answers.
        finishes_to_lose: How the next COMMIT or ROLLBACK PREPARED lose their answers.
        ever_committed: Every branch that was ever committed here, in spite of restores.
    """

    def __init__(self, name: str, branches: Sequence[str]) -> None:
        super().__init__()
        self.name = name
        self.branches = tuple(branches)
        self.state = ParticipantState()
        self.staging = MemoryStagingTables()
        self.refused: set[Position] = set()
        self.prepares_to_lose: deque[LostAnswer] = deque()
        self.finishes_to_lose: deque[LostAnswer] = deque()
        self.ever_committed: set[GlobalId] = set()
        #: Transactions whose PREPARE the server has yet to read; they hold locks.
        self._open: dict[GlobalId, tuple[Position, ...]] = {}
        self._late_finishes: list[tuple[GlobalId, bool]] = []

    def prepare(self, order: BranchOrder) -> None:
        """Run a branch's whole transaction, up to PREPARE TRANSACTION.

        Raises:
            RowsRejectedError: The result table refuses rows.
            FatalError: The markers differ from home's decisions.
            RetryableError: Staged rows are missing, another transaction has locked the
                marker's key, or the answer to PREPARE was lost.
        """
        gid, terms = order.gid, order.terms
        self.arrive("preparing a branch")
        compare_history(
            gid.branch,
            decided=terms.decided.get(gid.branch),
            marked=self.newest_markers(gid.claim).get(gid.branch),
        )
        moved = self.staging.move(
            gid.claim.epoch, order.tally, staged_for(gid.branch), self.refused
        )
        if any(marker_key(gid) == marker_key(one) for one in self._unfinished()):
            raise lock_not_available(f"A transaction has the marker of {gid} locked.")
        if marker_key(gid) in self.state.markers:
            raise FatalError(
                "POSTGRES_REFUSED",
                saw=f"The marker of {gid} is there already.",
                why="A branch of a batch is committed once.",
                fix="Report this.",
            )
        lost = self.take_loss(self.prepares_to_lose, "PREPARE")
        if lost is LostAnswer.LATE:
            self._open[gid] = moved
        elif lost is not LostAnswer.DROPPED:
            self._prepare(gid, moved)
        if lost is not None:
            raise no_answer("PREPARE TRANSACTION")

    def finish(self, gid: GlobalId, *, commit: bool) -> bool:
        """Run COMMIT PREPARED or ROLLBACK PREPARED; False if no branch has this name.

        Raises:
            RetryableError: The answer was lost.
        """
        statement = "COMMIT PREPARED" if commit else "ROLLBACK PREPARED"
        self.arrive(statement)
        if gid not in self.state.prepared:
            return False
        lost = self.take_loss(self.finishes_to_lose, statement)
        if lost is LostAnswer.LATE:
            self._late_finishes.append((gid, commit))
        elif lost is not LostAnswer.DROPPED:
            self._finish(gid, commit=commit)
        if lost is not None:
            raise no_answer(statement)
        return True

    @property
    def has_late_statements(self) -> bool:
        """Whether a statement whose client has given up is still under way."""
        return bool(self._open or self._late_finishes)

    def act_late(self) -> None:
        """Act on every statement whose client has given up."""
        for gid, rows in self._open.items():
            self._prepare(gid, rows)
        self._open.clear()
        for gid, commit in self._late_finishes:
            if gid in self.state.prepared:
                self._finish(gid, commit=commit)
        self._late_finishes.clear()

    def newest_markers(self, claim: EpochClaim) -> dict[str, GlobalId]:
        """Read the newest marker of each branch of a claim's pipeline."""
        newest: dict[str, GlobalId] = {}
        for gid in self.state.markers.values():
            if gid.claim.is_of_the_same_pipeline(claim):
                known = newest.get(gid.branch)
                if known is None or known.sequence < gid.sequence:
                    newest[gid.branch] = gid
        return newest

    def crash(self) -> None:
        """Crash the server: staging comes back empty, prepared branches stay."""
        self._end_transactions()
        self.staging.lose_rows()

    def restore(self, state: ParticipantState) -> None:
        """Restore a backup, with its prepared branches and without staging."""
        self._end_transactions()
        self.state = state
        self.staging.drop()

    def _end_transactions(self) -> None:
        self._open.clear()
        self._late_finishes.clear()

    def _unfinished(self) -> Iterator[GlobalId]:
        yield from self.state.prepared
        yield from self._open

    def _prepare(self, gid: GlobalId, rows: tuple[Position, ...]) -> None:
        assert gid not in self.state.prepared, f"{gid} is prepared twice"
        prepared = {**self.state.prepared, gid: rows}
        self.state = replace(self.state, prepared=prepared)

    def _finish(self, gid: GlobalId, *, commit: bool) -> None:
        if commit:
            self.ever_committed.add(gid)
        self.state = (
            self.state.with_committed(gid)
            if commit
            else self.state.with_rolled_back(gid)
        )


class MemoryPreparedBranches:
    """The ``PreparedBranches`` port on a ``MemoryParticipantDatabase``.

    Args:
        database: The database with the branches.
        pipeline: Any claim of the pipeline.
    """

    def __init__(
        self, database: MemoryParticipantDatabase, pipeline: EpochClaim
    ) -> None:
        self._database = database
        self._pipeline = pipeline

    @property
    def database(self) -> str:
        return self._database.name

    def list_prepared(self) -> Sequence[GlobalId]:
        self._database.arrive("listing prepared branches")
        return sorted(
            gid
            for gid in self._database.state.prepared
            if gid.claim.is_of_the_same_pipeline(self._pipeline)
        )

    def commit_prepared(self, gid: GlobalId) -> bool:
        return self._database.finish(gid, commit=True)

    def roll_back_prepared(self, gid: GlobalId) -> bool:
        return self._database.finish(gid, commit=False)

    def has_marker(self, gid: GlobalId) -> bool:
        self._database.arrive("reading a marker")
        return self._database.state.markers.get(marker_key(gid)) == gid


class MemoryParticipant(MemoryPreparedBranches):
    """One driver's view of a database; see ``sinks.protocol.ports.Participant``."""

    def __init__(self, database: MemoryParticipantDatabase, claim: EpochClaim) -> None:
        super().__init__(database, claim)
        self._claim = claim
        self._begun: dict[GlobalId, BranchOrder] = {}
        #: Errors, or None, of branches that have run and were not awaited yet.
        self._worked: dict[GlobalId, Exception | None] = {}

    def open(self) -> None:
        self._database.arrive("opening a participant")

    def create_tables(self) -> None:
        self._database.arrive("creating tables")
        self._database.staging.open(self._claim.epoch)

    def touched(self, tally: BatchTally, terms: BatchTerms) -> Sequence[str]:
        del terms  # Only windows would need the watermark.
        return [
            branch
            for branch in self._database.branches
            if tally.staged.get(staged_for(branch))
        ]

    def begin_prepare(self, order: BranchOrder) -> None:
        self._begun[order.gid] = order

    def await_prepared(self, gid: GlobalId, *, meanwhile: Callable[[], None]) -> None:
        meanwhile()
        self.work()
        error = self._worked.pop(gid)
        if error is not None:
            raise error

    def await_quiet(self) -> None:
        self.work()
        self._worked.clear()

    def newest_markers(self) -> Mapping[str, GlobalId]:
        self._database.arrive("reading the newest markers")
        return self._database.newest_markers(self._claim)

    def work(self) -> None:
        """Let the driver's threads run what was begun, to success or failure."""
        while self._begun:
            gid = next(iter(self._begun))
            order = self._begun.pop(gid)
            self._worked[gid] = self._try_prepare(order)

    def _try_prepare(self, order: BranchOrder) -> Exception | None:
        try:
            self._database.prepare(order)
        except (RetryableError, FatalError, RowsRejectedError) as error:
            return error
        return None
