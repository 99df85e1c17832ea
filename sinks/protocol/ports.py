"""What the coordinator needs from the outside world, as small protocols.

The usual order of calls, once per driver::

    claim_epoch -> (read_progress -> Stage -> open_publish_transaction -> commit)*

The driver stages a batch while the one before it is still being published. If other
databases take part, these calls surround each COMMIT of the home::

    begin_prepare -> await_prepared -> (home's COMMIT) -> commit_prepared

Production binds them to Postgres and Spark, tests to the fakes of
``tallyweir.sinks.testing``; one conformance suite holds both to the same behaviour.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self, TypeAlias

from tallyweir.sinks.protocol.batch_run import BatchRun
from tallyweir.sinks.protocol.decisions import PublishDecision
from tallyweir.sinks.protocol.identity import BatchKey, Epoch
from tallyweir.sinks.protocol.identity import Sequence as SequenceNumber
from tallyweir.sinks.protocol.in_doubt import EpochClaim, GlobalId, InDoubtFacts
from tallyweir.sinks.protocol.measures import NOTHING_MEASURED, Measures
from tallyweir.sinks.protocol.offsets import OffsetRange, TopicPartition
from tallyweir.sinks.protocol.recovery import StoredPosition, topic_ids
from tallyweir.sinks.protocol.votes import BatchTally, KeyedVote, Vote
from tallyweir.sinks.protocol.watermark import (
    ClockRule,
    PartitionClock,
    latest_of,
    move_clocks,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanBasis:
    """The state that a batch is planned on: the one that the batch before it leaves."""

    watermark_us: int | None
    after_sequence: SequenceNumber
    clocks: Mapping[TopicPartition, PartitionClock]
    #: Kafka's ids of the topics that the offsets belong to.
    topic_ids: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a pipeline stands, read in one snapshot."""

    positions: Mapping[TopicPartition, StoredPosition]
    watermark_us: int | None
    last_sequence: SequenceNumber
    newest_epoch: Epoch
    #: Event time and activity of each partition of the stream.
    clocks: Mapping[TopicPartition, PartitionClock]

    @property
    def basis(self) -> PlanBasis:
        """The state that the next batch is planned on."""
        return PlanBasis(
            watermark_us=self.watermark_us,
            after_sequence=self.last_sequence,
            clocks=self.clocks,
            topic_ids=topic_ids(self.positions),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """A batch as fixed before its first task runs. A replay has the same plan."""

    key: BatchKey
    #: Empty for a tick.
    ranges: Sequence[OffsetRange]
    #: The watermark that decides which of its events are late.
    watermark_us: int | None
    #: The newest batch. Events are checked against the IDs seen up to it, and functions
    #: get the keyed state that it left.
    after_sequence: SequenceNumber
    #: Event time and activity of each partition, before it.
    clocks: Mapping[TopicPartition, PartitionClock]
    #: The database's clock at planning. It bounds event times in the future, and
    #: decides which partitions are idle and which timers are due.
    planned_at_us: int
    #: Kafka's ids of the topics that the ranges belong to.
    topic_ids: Mapping[str, str]
    #: Versions of the lookup tables, for the ledger.
    lookups: Mapping[str, str] = field(default_factory=dict)
    #: The batch run, if the batch is one; its ranges are then in the run's own topic.
    run: BatchRun | None = None
    #: For a tick that closes what is open: it moves the watermark up to here, because
    #: an operator has said that no more events are to be awaited.
    closes_through_us: int | None = None

    @property
    def sequence(self) -> SequenceNumber:
        """The number that the batch gets in the ledger."""
        return SequenceNumber(self.after_sequence + 1)

    @property
    def fires_clock_through_us(self) -> int | None:
        """Clock time up to which timers are due; None in a tick that closes."""
        return self.planned_at_us if self.closes_through_us is None else None

    @property
    def offsets(self) -> int:
        """Number of offsets that it covers, whether or not each holds a record."""
        return sum(covered.length for covered in self.ranges)

    def basis_after(self, rule: ClockRule, tally: BatchTally) -> PlanBasis:
        """Return the state that the next batch is planned on, after this one.

        Publishing computes the same again under its lock, and the two must be equal.
        """
        return PlanBasis(
            watermark_us=self.watermark_after(rule, tally),
            after_sequence=self.sequence,
            clocks=self.clocks_after(tally),
            topic_ids=self.topic_ids,
        )

    def clocks_after(self, tally: BatchTally) -> dict[TopicPartition, PartitionClock]:
        """Return the partitions' clocks after the batch, by what it held of each."""
        covered = [planned.topic_partition for planned in self.ranges]
        return move_clocks(self.clocks, covered, tally.partitions, self.planned_at_us)

    def watermark_after(self, rule: ClockRule, tally: BatchTally) -> int | None:
        """Return the watermark after the batch, by what it held of each partition.

        A run says nothing about events that a stream has yet to bring, so in a
        pipeline that reads a stream it moves no watermark. Without a stream, the newest
        event of the run moves it: the input is bounded and fully read.
        """
        clocks = list(self.clocks_after(tally).values())
        if self.run is not None:
            if self.clocks:
                return self.watermark_us
            clocks = [latest_of(clocks)]
        reached_us = rule.watermark_after(
            self.watermark_us, clocks, now_us=self.planned_at_us
        )
        if self.closes_through_us is None:
            return reached_us
        return max(reached_us or self.closes_through_us, self.closes_through_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedRow:
    """A row that a result table refused, found by bisection."""

    topic_partition: TopicPartition
    offset: int
    detail: str

    @property
    def key(self) -> object:
        """Identity of the rejected row, whatever the reason."""
        return self.topic_partition, self.offset


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedBucket:
    """A span of event time for which the catalog of seen IDs has no table left."""

    #: Where it begins, in seconds since 1970.
    bucket: int
    detail: str

    @property
    def key(self) -> object:
        """Identity of the rejected bucket, whatever the reason."""
        return self.bucket


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomlessRow:
    """A row of a bucket that was rejected, as the ledger of its batch lists it."""

    topic_partition: TopicPartition
    offset: int
    detail: str

    @property
    def key(self) -> object:
        """Identity of the rejected row, whatever the reason."""
        return self.topic_partition, self.offset


#: What the driver leaves out when it stages a batch again.
Rejection: TypeAlias = RejectedRow | RejectedBucket | RoomlessRow


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedBatch:
    """What phase one left behind."""

    votes: Sequence[Vote]
    #: Counted by Spark at the source, independently of the votes.
    records_read: int
    #: Measures of work outside of tasks, which no task can take.
    measures: Measures = NOTHING_MEASURED


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedKeys:
    """What phase 2b left behind."""

    votes: Sequence[KeyedVote]
    #: The watermark after the batch, which decided the timers that fired.
    watermark_us: int | None


class RowsRejectedError(Exception):
    """Publishing was rolled back: the database refused rows, or IDs of some events.

    This is no error of the batch: it is staged again with these events as dead letters.
    """

    def __init__(
        self,
        rows: Sequence[RejectedRow] = (),
        *,
        buckets: Sequence[RejectedBucket] = (),
    ) -> None:
        super().__init__(f"{len(rows)} rows and {len(buckets)} buckets were rejected")
        self.rows = tuple(rows)
        self.buckets = tuple(buckets)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTerms:
    """What publishing fixes under the lock before it moves any row."""

    sequence: SequenceNumber
    watermark_before_us: int | None
    watermark_after_us: int | None
    #: By the home database's clock.
    planned_at_us: int
    #: The newest decision of each branch, by its name; all of them are finished.
    decided: Mapping[str, GlobalId]


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchOrder:
    """An order to a participant: the branch to prepare, and with what."""

    gid: GlobalId
    tally: BatchTally
    terms: BatchTerms


class PublishTransaction(Protocol):
    """The home's publish transaction, open and holding the pipeline's row.

    A context manager: leaving it without ``commit`` rolls it back.
    """

    #: Whether the batch is the next one or was committed before.
    decision: PublishDecision

    @property
    def terms(self) -> BatchTerms:
        """The terms that the batch is published on; only if it is to be published."""
        ...

    def move_rows(self) -> None:
        """Write the home database's own share of the batch.

        Raises:
            RowsRejectedError: A result table refused rows.
            RetryableError: Staged rows are missing, or the server failed.
        """
        ...

    def keep_alive(self) -> None:
        """Show the server that the driver lives, while it waits for branches."""
        ...

    def commit(self, branches: Sequence[GlobalId]) -> None:
        """Decide: COMMIT, with the list of the branches that belong to the batch.

        Raises:
            OutcomeUnknownError: The answer was lost.
        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class DecisionLedger(Protocol):
    """The home database, as a driver or the resolver needs it to finish branches."""

    def read_in_doubt(self, gids: Collection[GlobalId]) -> InDoubtFacts:
        """Read what ``decide_in_doubt`` needs, under the lock of the pipeline's row.

        Waits for a publish transaction under way, so that the facts stay true.
        """
        ...

    def note_committed(self, branches: Collection[GlobalId]) -> None:
        """Note that decided branches were seen committed.

        ``tallyweir.visible_through`` shows readers these notes.
        """
        ...


class PreparedBranches(Protocol):
    """A database with branches, as a driver or the resolver needs it to finish them."""

    @property
    def database(self) -> str:
        """Its name in the pipeline."""
        ...

    def list_prepared(self) -> Sequence[GlobalId]:
        """List the prepared branches of this pipeline in this database."""
        ...

    def commit_prepared(self, gid: GlobalId) -> bool:
        """Commit a branch; False when no branch of this name is prepared."""
        ...

    def roll_back_prepared(self, gid: GlobalId) -> bool:
        """Roll a branch back; False when no branch of this name is prepared."""
        ...

    def has_marker(self, gid: GlobalId) -> bool:
        """Tell whether a branch was committed."""
        ...


class Home(DecisionLedger, Protocol):
    """The home database of one pipeline, as seen by one driver."""

    @property
    def claim(self) -> EpochClaim:
        """The claim that this driver made."""
        ...

    def claim_epoch(self) -> Epoch:
        """Fence every older driver of the pipeline and return the new epoch.

        Returns once no publish transaction of an older driver is under way, so
        that no older driver can change progress that is read afterwards.
        """
        ...

    def read_progress(self) -> Progress:
        """Read where the pipeline stands."""
        ...

    def open_publish_transaction(
        self, plan: BatchPlan, tally: BatchTally, *, restagings: int
    ) -> PublishTransaction:
        """Lock the pipeline's row, fence, and compare the offsets.

        Raises:
            FencedError: A newer epoch is claimed.
            RetryableError: The server failed.
            FatalError: The offsets do not fit the plan, or the claim is gone.
            ConfigurationError: There is no room for what the batch needs.
        """
        ...

    def read_decided(self) -> Mapping[str, GlobalId]:
        """Read the newest decision of each branch, by the branch's name."""
        ...


class Participant(PreparedBranches, Protocol):
    """A database that holds branches, as seen by one driver."""

    def open(self) -> None:
        """Make sure that it can take part, and that its branches can be settled.

        Raises:
            ConfigurationError: The database cannot take part; see the fix.
        """
        ...

    def create_tables(self) -> None:
        """Make result tables and staging there, once no branch is in doubt any more."""
        ...

    def touched(self, tally: BatchTally, terms: BatchTerms) -> Sequence[str]:
        """Name its branches that a batch changes; may raise a ``RetryableError``."""
        ...

    def begin_prepare(self, order: BranchOrder) -> None:
        """Start to move a branch's rows; does not wait."""
        ...

    def await_prepared(self, gid: GlobalId, *, meanwhile: Callable[[], None]) -> None:
        """Wait until a branch is prepared; call ``meanwhile`` every few seconds.

        Raises:
            RowsRejectedError: A result table refused rows.
            FatalError: The database's history differs from home's.
            RetryableError: Anything else; the branch may yet become prepared.
        """
        ...

    def await_quiet(self) -> None:
        """Wait until no work that was begun is still running."""
        ...

    def newest_markers(self) -> Mapping[str, GlobalId]:
        """Read the newest committed branch of each name."""
        ...


class Stage(Protocol):
    """Phase one of one batch: run its tasks and bring back their votes."""

    def __call__(
        self, plan: BatchPlan, rejected: Sequence[Rejection]
    ) -> StagedBatch: ...


class StageKeys(Protocol):
    """Phase 2b: run the functions of stateful outputs on what phase one voted for."""

    def __call__(self, plan: BatchPlan, tally: BatchTally) -> StagedKeys: ...
