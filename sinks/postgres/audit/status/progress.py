"""Where a pipeline stands, how fast it works, and whether it does anything at all.

``docs/status.md`` gives the formula of every number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from psycopg import Connection
from psycopg.rows import DictRow, TupleRow

from tallyweir.sinks.postgres.audit.audited_databases import (
    NO_DATABASES,
    AuditedDatabase,
)
from tallyweir.sinks.postgres.audit.receipt import Totals
from tallyweir.sinks.postgres.audit.status.branches_in_doubt import (
    DatabaseStatus,
    reach_databases,
    read_database_status,
)
from tallyweir.sinks.postgres.audit.status.waiting import read_open_windows
from tallyweir.sinks.postgres.audit.verification import read_totals
from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    AuditedPipeline,
    fetch,
    fetch_one,
    read_pipeline,
    snapshot,
)
from tallyweir.sinks.postgres.ledger.epoch_claims import (
    Drain,
    Pause,
    read_drain,
    read_pause,
)
from tallyweir.sinks.postgres.server.naming import parse_application_name
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.guarantee import Guarantee
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.recovery import StoredPosition

_PROGRESS = load_statements("tallyweir.sinks.postgres.audit.status", "progress.sql")
_OVERVIEW = load_statements("tallyweir.sinks.postgres.audit.status", "overview.sql")
_CATALOG = load_statements("tallyweir.sinks.postgres.audit", "catalog.sql")

#: How many seconds count as "now", and how long a driver with work may be silent.
RECENT_S = 60
RECENT_BATCHES = 10


class PipelineState(Enum):
    """The state of a pipeline, in one or two words."""

    RUNNING = "RUNNING"
    CAUGHT_UP = "CAUGHT UP"
    STALLED = "STALLED"
    STOPPED = "STOPPED"
    #: Nothing is published until an operator resumes the pipeline.
    PAUSED = "PAUSED"
    #: Nothing more is read; a driver is to finish what was begun.
    DRAINING = "DRAINING"
    #: Paused, with nothing left to finish.
    DRAINED = "DRAINED"
    #: Only an older driver is connected, which may not publish any more.
    FENCED = "FENCED"


class PartitionClockState(Enum):
    """Whether a partition holds back the pipeline's watermark."""

    ACTIVE = "active"
    #: It has had no event yet, and appeared less than the idle timeout ago.
    AWAITED = "awaited"
    IDLE = "idle"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """Where one Kafka partition stands."""

    position: TopicPartition
    stored: StoredPosition
    event_time_max: datetime | None
    #: The partition's own; while it is active, the pipeline's does not pass it.
    watermark: datetime | None
    clock: PartitionClockState


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStatus:
    """One published batch."""

    sequence: int
    epoch: int
    planned_at: datetime
    published_at: datetime
    read: int
    committed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverStatus:
    """The newest claim, and whether its driver is connected.

    Attributes:
        fenced: Epochs of older drivers that are still connected.
        run: The batch run that claimed; None for a driver of the stream.
    """

    epoch: int
    host: str
    process_id: int
    claimed_at: datetime
    is_connected: bool
    fenced: tuple[int, ...] = ()
    run: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowStatus:
    """Groups of a window output that are not final yet, over all of its databases.

    Both numbers are None if one of the databases does not respond.
    """

    table: str
    open_groups: int | None
    events: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a pipeline stands at one moment of the home database's clock.

    Attributes:
        visible_through: The newest batch such that it and all before it are committed
            everywhere.
        driver: The newest driver; None if there has been none.
        pause: None unless the pipeline is paused.
        drain: None unless a driver is to drain the pipeline.
        moved_at: When offsets last moved; None if they did not of late.
    """

    pipeline: str
    guarantee: Guarantee
    observed_at: datetime
    watermark: datetime | None
    newest_event_time: datetime | None
    last_sequence: int
    visible_through: int
    driver: DriverStatus | None
    pause: Pause | None
    drain: Drain | None
    moved_at: datetime | None = None

    @property
    def freshness_s(self) -> float | None:
        """Seconds by which the newest committed event time is behind the clock."""
        return self.since(self.newest_event_time)

    @property
    def since_move_s(self) -> float | None:
        return self.since(self.moved_at)

    def since(self, moment: datetime | None) -> float | None:
        """Return the seconds from a moment to the one that is described."""
        return None if moment is None else (self.observed_at - moment).total_seconds()

    def state(self, lag: int | None) -> PipelineState:
        return decide_state(
            pause=self.pause,
            drain=self.drain,
            driver=self.driver,
            lag=lag,
            since_commit_s=self.since_move_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Status(Standing):
    """The home's knowledge of a pipeline at one moment of the home's clock."""

    partitions: tuple[PartitionStatus, ...]
    last_batch: BatchStatus | None
    #: Events read per second over the last ``RECENT_S`` seconds.
    minute_rate: float
    #: The same over the last ``RECENT_BATCHES`` batches, from the plan of the first to
    #: the publish of the last; None without batches.
    batches_rate: float | None
    totals: Totals
    windows: tuple[WindowStatus, ...]
    #: None if deduplication is off.
    catalog_ids: int | None
    #: Databases that publish branches; empty if every batch is one transaction.
    databases: tuple[DatabaseStatus, ...]

    @property
    def next_offsets(self) -> dict[TopicPartition, int]:
        """The next offset to read of each partition."""
        return {part.position: part.stored.next_offset for part in self.partitions}

    @property
    def since_commit_s(self) -> float | None:
        return self.since(self.last_batch.published_at if self.last_batch else None)


def decide_state(
    *,
    pause: Pause | None,
    drain: Drain | None,
    driver: DriverStatus | None,
    lag: int | None,
    since_commit_s: float | None,
) -> PipelineState:
    """Choose the state; a pipeline that does not move while there is lag never runs.

    Args:
        pause: The pause in force.
        drain: The drain that a driver has yet to finish.
        driver: The newest driver; None if there has been none.
        lag: Offsets between Kafka's ends and the pipeline. None if Kafka did not
            respond; that counts as lag, because nothing shows that there is none.
        since_commit_s: Seconds since the last batch that moved offsets; a batch that
            only fires timers does not. None if there is no such batch.
    """
    if pause is not None:
        return PipelineState.DRAINED if pause.is_drained else PipelineState.PAUSED
    if drain is not None:
        return PipelineState.DRAINING
    if driver is None or not driver.is_connected:
        is_fenced = driver is not None and driver.fenced
        return PipelineState.FENCED if is_fenced else PipelineState.STOPPED
    # A batch run publishes once, at its end, and the records in Kafka are not its work.
    is_run = driver.run is not None
    if lag == 0 and not is_run:
        return PipelineState.CAUGHT_UP
    moves = since_commit_s is not None and since_commit_s <= RECENT_S
    return PipelineState.RUNNING if is_run or moves else PipelineState.STALLED


def read_status(
    connection: Connection[TupleRow],
    pipeline: str,
    databases: Mapping[str, str] = NO_DATABASES,
) -> Status:
    """Read everything that the home database knows, from one snapshot.

    If another database does not respond, its part of the status is unknown.

    Args:
        connection: To the home, outside a transaction. Nothing is written.
        pipeline: The pipeline's name.
        databases: Connection strings of the other databases, by name; extra names are
            allowed.

    Raises:
        ConfigurationError: No such pipeline, or a table may not be read.
        RetryableError: The home's server went away.
    """
    with (
        ExitStack() as opened,
        snapshot(connection, doing="reading a pipeline's status"),
    ):
        audited = read_pipeline(connection, pipeline)
        row = fetch_one(connection, _PROGRESS["pipeline_state"], pipeline=pipeline)
        recent = _read_recent(connection, pipeline)
        catalog = fetch_one(connection, _CATALOG["catalog_size"], pipeline=pipeline)
        parts = reach_databases(opened, connection, audited, databases)
        return Status(
            pipeline=pipeline,
            guarantee=audited.guarantee,
            observed_at=row["observed_at"],
            watermark=row["watermark"],
            newest_event_time=row["newest_event_time"],
            partitions=_read_partitions(connection, pipeline),
            last_batch=recent[-1] if recent else None,
            moved_at=row["moved_at"],
            last_sequence=row["last_sequence"],
            visible_through=row["visible_through"],
            minute_rate=minute_rate(recent, row["observed_at"]),
            batches_rate=batches_rate(recent),
            driver=driver_of(row, read_driver_sessions(connection)),
            totals=read_totals(connection, pipeline),
            windows=_read_windows(audited, parts),
            catalog_ids=None if audited.horizon_s is None else catalog["ids"],
            pause=read_pause(connection, pipeline),
            drain=read_drain(connection, pipeline),
            databases=read_database_status(
                connection, audited, parts, row["observed_at"]
            ),
        )


def minute_rate(batches: Sequence[BatchStatus], now: datetime) -> float:
    """Events per second over the last minute, including idle time."""
    read = sum(
        b.read for b in batches if (now - b.published_at).total_seconds() <= RECENT_S
    )
    return read / RECENT_S


def batches_rate(batches: Sequence[BatchStatus]) -> float | None:
    """Events per second while the last batches were worked on, including pauses."""
    last = batches[-RECENT_BATCHES:]
    if not last:
        return None
    elapsed_s = (last[-1].published_at - last[0].planned_at).total_seconds()
    return sum(b.read for b in last) / elapsed_s if elapsed_s > 0 else None


def _read_recent(
    connection: Connection[TupleRow], pipeline: str
) -> tuple[BatchStatus, ...]:
    rows = fetch(
        connection,
        _PROGRESS["recent_batches"],
        pipeline=pipeline,
        seconds=RECENT_S,
        batches=RECENT_BATCHES,
    )
    return tuple(BatchStatus(**row) for row in rows)


def _read_partitions(
    connection: Connection[TupleRow], pipeline: str
) -> tuple[PartitionStatus, ...]:
    return tuple(
        PartitionStatus(
            position=TopicPartition(row["topic"], row["partition"]),
            stored=StoredPosition(
                topic_id=row["topic_id"], next_offset=row["next_offset"]
            ),
            event_time_max=row["event_time_max"],
            watermark=row["watermark"],
            clock=PartitionClockState(row["clock"]),
        )
        for row in fetch(connection, _PROGRESS["partitions"], pipeline=pipeline)
    )


def driver_of(row: DictRow, sessions: Iterable[str]) -> DriverStatus | None:
    """Describe the newest claim, and whether its or an older driver is connected.

    Args:
        row: The pipeline's row, with its newest claim.
        sessions: The names of drivers' sessions, of this pipeline and others.
    """
    if row["epoch"] is None:
        return None
    claims = filter(None, map(parse_application_name, sessions))
    here = {epoch for number, epoch in claims if number == row["pipeline_number"]}
    return DriverStatus(
        epoch=row["epoch"],
        host=row["host"],
        process_id=row["process_id"],
        claimed_at=row["claimed_at"],
        is_connected=row["epoch"] in here,
        fenced=tuple(sorted(epoch for epoch in here if epoch < row["epoch"])),
        run=row["run"],
    )


def read_driver(connection: Connection[TupleRow], pipeline: str) -> DriverStatus | None:
    """Read the newest driver, and whether it is connected; None before the first.

    Raises:
        ConfigurationError: No such pipeline.
        RetryableError: The server went away.
    """
    with snapshot(connection, doing="looking for a driver"):
        read_pipeline(connection, pipeline)
        row = fetch_one(connection, _PROGRESS["pipeline_state"], pipeline=pipeline)
        return driver_of(row, read_driver_sessions(connection))


def read_driver_sessions(connection: Connection[TupleRow]) -> set[str]:
    """Read the names of all drivers' sessions, in the caller's snapshot."""
    rows = fetch(connection, _OVERVIEW["driver_sessions"])
    return {row["application_name"] for row in rows}


def _read_windows(
    pipeline: AuditedPipeline, parts: Mapping[str, AuditedDatabase | str]
) -> tuple[WindowStatus, ...]:
    windows = []
    for output in pipeline.windows:
        here = [parts[name] for name in output.databases]
        there = [
            read_open_windows(part, pipeline, output)
            for part in here
            if not isinstance(part, str)
        ]
        is_known = len(there) == len(here)
        windows.append(
            WindowStatus(
                table=output.table,
                open_groups=sum(one.groups for one in there) if is_known else None,
                events=sum(one.events for one in there) if is_known else None,
            )
        )
    return tuple(windows)
