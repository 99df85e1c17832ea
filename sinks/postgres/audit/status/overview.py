"""All pipelines of a home database at a glance: where each stands, what delays it.

``docs/monitor.md`` gives the formula of every number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from psycopg import Connection
from psycopg.errors import UndefinedTable
from psycopg.rows import DictRow, TupleRow

from tallyweir.sinks.postgres.audit.status.progress import (
    RECENT_S,
    PipelineState,
    Standing,
    driver_of,
    read_driver_sessions,
)
from tallyweir.sinks.postgres.audit.status.receipt_note import (
    KeptReceipt,
    read_receipts,
)
from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    fetch,
    guarantee_of,
    ledger_missing,
    snapshot,
    topics_of,
)
from tallyweir.sinks.postgres.ledger.epoch_claims import Drain, Pause
from tallyweir.sinks.postgres.server.naming import application_name
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.offsets import TopicPartition

_SQL = load_statements("tallyweir.sinks.postgres.audit.status", "overview.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentCounts:
    """Batches of the last ``RECENT_S`` seconds, and what became of their records."""

    batches: int
    read: int
    committed: int
    duplicate: int
    dead: int
    late: int
    expired: int
    filtered: int

    @property
    def per_second(self) -> float:
        return self.read / RECENT_S


@dataclass(frozen=True, slots=True, kw_only=True)
class LockWait:
    """A driver's session that waits for a lock, and a session that blocks it."""

    seconds: float
    #: The locked table; None if the lock is not on a table.
    relation: str | None
    #: 0 for a prepared transaction, which has no session.
    process_id: int
    holder: str | None
    holder_role: str | None

    def told(self) -> str:
        """Describe the wait in a sentence."""
        where = f"a lock on {self.relation}" if self.relation else "a lock"
        if not self.process_id:
            return f"It waits for {where} that a prepared transaction holds."
        who = f"process {self.process_id}"
        if self.holder_role:
            who += f" of {self.holder_role}"
        if self.holder:
            who += f" ({self.holder})"
        return f"It has waited {self.seconds:.0f} s for {where} that {who} holds."


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSummary(Standing):
    """One pipeline at one moment of the home database's clock.

    Attributes:
        topics: The topics that it reads; empty if it has had only batch runs.
        next_offsets: The next offset to read of each partition.
        recent: Counts of the last minute.
        wait: None if its driver waits for no lock.
        receipt: The newest result of ``verify``; None if it never ran.
    """

    topics: tuple[str, ...]
    last_published_at: datetime | None
    next_offsets: Mapping[TopicPartition, int]
    recent: RecentCounts
    wait: LockWait | None
    receipt: KeptReceipt | None = None

    @property
    def since_commit_s(self) -> float | None:
        return self.since(self.last_published_at)

    @property
    def since_receipt_s(self) -> float | None:
        return None if self.receipt is None else self.since(self.receipt.taken_at)

    @property
    def in_doubt(self) -> int:
        """Batches that are decided but not yet committed in every database."""
        return self.last_sequence - self.visible_through

    def catch_up_s(self, lag: int | None) -> float | None:
        """Return the seconds that a lag takes at the last minute's rate."""
        rate = self.recent.per_second
        return lag / rate if lag and rate else None

    def cause(self, lag: int | None) -> str | None:
        """Say what most likely keeps the pipeline from moving; None if it moves."""
        if self.pause is not None:
            return f"It is {self.pause.told()}."
        if self.drain is not None:
            return f"It is {self.drain.told()}. A driver ends it."
        if self.state(lag) is PipelineState.STALLED:
            return self._stall(lag)
        if self.driver is not None and self.driver.fenced:
            older = " and ".join(str(epoch) for epoch in self.driver.fenced)
            return (
                f"The driver of epoch {older} is still connected; epoch "
                f"{self.driver.epoch} has taken over, so the older driver publishes "
                "nothing more."
            )
        return None

    def _stall(self, lag: int | None) -> str:
        if self.wait is not None:
            return self.wait.told()
        if self.in_doubt:
            return (
                f"Batch {self.visible_through + 1} is decided and not committed in "
                "every database; tallyweir indoubt list says where."
            )
        if lag is None:
            return "Kafka does not answer."
        if self.since_commit_s is not None and self.since_commit_s <= RECENT_S:
            return (
                "Timers fire, but the driver reads nothing although records wait; "
                "see its log."
            )
        return (
            "The driver is connected and has records to read, but publishes nothing; "
            "see its log."
        )


def read_overview(connection: Connection[TupleRow]) -> tuple[PipelineSummary, ...]:
    """Read all pipelines of a home database, from one snapshot, in order of names.

    Raises:
        ConfigurationError: ``LEDGER_MISSING``, or a table may not be read.
        RetryableError: The server went away.
    """
    with snapshot(connection, doing="reading all pipelines"):
        try:
            rows = fetch(connection, _SQL["pipelines"], seconds=RECENT_S)
        except UndefinedTable as error:
            raise ledger_missing() from error
        offsets = _read_next_offsets(connection)
        sessions = read_driver_sessions(connection)
        receipts = read_receipts(connection)
        waits = {
            row.pop("application_name"): LockWait(**row)
            for row in fetch(connection, _SQL["waits"])
        }
    return tuple(
        _summary(
            row,
            offsets.get(row["pipeline"], {}),
            sessions,
            waits,
            receipts.get(row["pipeline"]),
        )
        for row in rows
    )


def _read_next_offsets(
    connection: Connection[TupleRow],
) -> dict[str, dict[TopicPartition, int]]:
    offsets: dict[str, dict[TopicPartition, int]] = {}
    for row in fetch(connection, _SQL["next_offsets"]):
        place = TopicPartition(row["topic"], row["partition"])
        offsets.setdefault(row["pipeline"], {})[place] = row["next_offset"]
    return offsets


def _summary(
    row: DictRow,
    offsets: Mapping[TopicPartition, int],
    sessions: set[str],
    waits: Mapping[str, LockWait],
    receipt: KeptReceipt | None,
) -> PipelineSummary:
    driver = driver_of(row, sessions)
    wait: LockWait | None = None
    if driver is not None:
        wait = waits.get(application_name(row["pipeline_number"], driver.epoch))
    return PipelineSummary(
        pipeline=row["pipeline"],
        guarantee=guarantee_of(row["definition"]),
        topics=topics_of(row["definition"]) if offsets else (),
        observed_at=row["observed_at"],
        watermark=row["watermark"],
        newest_event_time=row["newest_event_time"],
        last_sequence=row["last_sequence"],
        visible_through=row["visible_through"],
        last_published_at=row["published_at"],
        next_offsets=offsets,
        recent=RecentCounts(
            **{name: row[name] for name in RecentCounts.__dataclass_fields__}
        ),
        driver=driver,
        wait=wait,
        pause=_pause(row),
        drain=_drain(row),
        receipt=receipt,
        moved_at=row["moved_at"],
    )


def _pause(row: DictRow) -> Pause | None:
    if row["paused_at"] is None:
        return None
    return Pause(
        reason=row["reason"],
        paused_by=row["paused_by"],
        paused_at=row["paused_at"],
        last_sequence=row["last_sequence"],
        is_drained=row["is_drained"],
    )


def _drain(row: DictRow) -> Drain | None:
    if row["asked_at"] is None:
        return None
    return Drain(
        epoch=row["asked_epoch"],
        closes_windows=row["closes_windows"],
        reason=row["asked_reason"],
        asked_by=row["asked_by"],
        asked_at=row["asked_at"],
    )
