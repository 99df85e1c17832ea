"""Finds what a pipeline holds back until event time has advanced."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime

from psycopg import Connection
from psycopg.rows import DictRow, TupleRow

from tallyweir.sinks.postgres.audit.audited_databases import (
    NO_DATABASES,
    AuditedDatabase,
    connect_databases,
    databases_of,
)
from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    AuditedOutput,
    AuditedPipeline,
    fetch_one,
    read_pipeline,
    snapshot,
)
from tallyweir.sinks.postgres.server.statements import load_statements

_SQL = load_statements("tallyweir.sinks.postgres.audit.status", "waiting.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingWindows:
    """The windows of an output that can still change, in one database.

    Attributes:
        closes_at: The watermark at which the last of them is final; None if there are
            no such windows.
    """

    table: str
    database: str
    groups: int
    events: int
    closes_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Windows and timers that wait for event time, in all databases of a pipeline.

    Attributes:
        timers: How many timers of keyed functions and joins wait in event time.
        last_timer: When the last of them is due.
        clock_timers: How many timers wait for the clock; no watermark fires them.
    """

    watermark: datetime | None
    windows: tuple[WaitingWindows, ...]
    timers: int
    last_timer: datetime | None
    clock_timers: int

    @property
    def closing_watermark(self) -> datetime | None:
        """The watermark after which none of these wait; None if none wait now."""
        moments = [one.closes_at for one in self.windows]
        return max(filter(None, [*moments, self.last_timer]), default=None)


def read_waiting(
    home: Connection[TupleRow],
    pipeline: str,
    databases: Mapping[str, str] = NO_DATABASES,
) -> Waiting:
    """Read what waits, from one snapshot of the home and one of each other database.

    Args:
        home: To the home, outside a transaction. Nothing is written.
        pipeline: The pipeline's name.
        databases: Connection strings of the other databases, by name; extra names are
            allowed.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN`` or ``DATABASE_UNKNOWN``.
        RetryableError: A database does not respond.
    """
    with ExitStack() as opened, snapshot(home, doing="reading what waits"):
        audited = read_pipeline(home, pipeline)
        parts = connect_databases(opened, home, databases_of(audited), databases)
        timers = fetch_one(home, _SQL["timers"], pipeline=pipeline)
        with parts.snapshots(audited):
            windows = tuple(
                read_open_windows(part, audited, output)
                for output in audited.windows
                for part in parts.of(output)
            )
    return Waiting(watermark=audited.watermark, windows=windows, **timers)


def read_open_windows(
    part: AuditedDatabase, pipeline: AuditedPipeline, output: AuditedOutput
) -> WaitingWindows:
    """Read the windows of an output that are open in a database."""
    table = part.state_table(pipeline, output.table)
    found: DictRow = {"groups": 0, "events": 0, "closes_at": None}
    # No driver may have created the table yet.
    if part.columns(table):
        (found,) = part.fetch(
            _SQL["windows"].format(state_table=table),
            allowed_lateness=output.allowed_lateness,
        )
    return WaitingWindows(table=output.table, database=part.name, **found)
