"""What the coordinator needs from the outside world, as small protocols.

The usual order of calls, once per driver::

    claim_epoch -> (read_progress -> Stage -> publish)* -> close

Production binds them to Postgres and Spark, tests to the fakes of
``sinks.testing``; one conformance suite holds both to the same behaviour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sinks.protocol.decisions import PublishOutcome
from sinks.protocol.identity import BatchKey, Epoch
from sinks.protocol.identity import Sequence as SequenceNumber
from sinks.protocol.offsets import OffsetRange, TopicPartition
from sinks.protocol.recovery import StoredPosition
from sinks.protocol.votes import BatchTally, Vote


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a pipeline stands, read in one snapshot."""

    positions: Mapping[TopicPartition, StoredPosition]
    watermark_us: int | None
    last_sequence: SequenceNumber
    newest_epoch: Epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """A batch as fixed before its first task runs. A replay has the same plan."""

    key: BatchKey
    ranges: Sequence[OffsetRange]
    #: The watermark that its events are judged by.
    watermark_us: int | None
    #: The newest batch whose seen IDs its events are checked against.
    after_sequence: SequenceNumber
    #: The database's clock at planning; bounds event times in the future.
    planned_at_us: int
    #: Kafka's ids of the topics that the ranges belong to.
    topic_ids: Mapping[str, str]
    #: Versions of the lookup tables, for the ledger.
    lookups: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedRow:
    """A row that a result table refused, found by bisection."""

    topic_partition: TopicPartition
    offset: int
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedBatch:
    """What phase one left behind."""

    votes: Sequence[Vote]
    #: Counted by Spark at the source, independently of the votes.
    records_read: int


class RowsRejectedError(Exception):
    """Publishing was rolled back because a result table refused rows.

    Not an error of the batch: it is staged again with these rows as dead letters.
    """

    def __init__(self, rows: Sequence[RejectedRow]) -> None:
        super().__init__(f"{len(rows)} rows were rejected")
        self.rows = tuple(rows)


class Home(Protocol):
    """The home database of one pipeline, as seen by one driver."""

    def claim_epoch(self) -> Epoch:
        """Fence every older driver of the pipeline and return the new epoch.

        Returns once no publish transaction of an older driver is under way, so
        that progress read afterwards cannot move by another's hand.
        """
        ...

    def read_progress(self) -> Progress:
        """Read where the pipeline stands."""
        ...

    def publish(
        self, plan: BatchPlan, tally: BatchTally, *, restagings: int
    ) -> PublishOutcome:
        """Move the voted rows to their tables, with offsets and ledger, or nothing.

        Raises:
            FencedError: A newer epoch is claimed.
            RowsRejectedError: A result table refused rows; nothing was published.
            OutcomeUnknownError: The answer to COMMIT was lost; calling again with
                the same arguments finds out.
            RetryableError: Nothing was published.
            FatalError: The offsets or the staged rows do not fit the plan.
        """
        ...


class Stage(Protocol):
    """Phase one of one batch: run its tasks and bring back their votes."""

    def __call__(
        self, plan: BatchPlan, rejected: Sequence[RejectedRow]
    ) -> StagedBatch: ...
