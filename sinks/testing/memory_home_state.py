"""What a transaction of the fake home database can change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tallyweir.sinks.protocol.identity import BatchKey, Epoch
from tallyweir.sinks.protocol.identity import Sequence as SequenceNumber
from tallyweir.sinks.protocol.in_doubt import EpochClaim, GlobalId
from tallyweir.sinks.protocol.offsets import OffsetRange, TopicPartition
from tallyweir.sinks.protocol.recovery import StoredPosition
from tallyweir.sinks.protocol.votes import EventCounts
from tallyweir.sinks.protocol.watermark import PartitionClock
from tallyweir.sinks.testing.planned_batches import Position

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
