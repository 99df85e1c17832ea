"""How a pipeline is scaled, and the newest decisions about it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from psycopg import Connection
from psycopg.rows import TupleRow, class_row

from tallyweir.sinks.postgres.ledger.audited_pipeline import fetch_pipeline, snapshot
from tallyweir.sinks.postgres.ledger.scaling_record import read_bounds
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.scaling.bounds import Bounds

_SQL = load_statements("tallyweir.sinks.postgres.ledger", "scaling.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedDecision:
    """A row of ``tallyweir.scaling_decision``; docs/scaling.md explains each figure."""

    decided_at: datetime
    epoch: int
    executors: int | None
    executors_before: int | None
    executors_there: int
    executors_wanted: int | None
    batch_offsets: int | None
    batch_offsets_before: int | None
    because: str
    reason: str
    tasks_max: int
    connections_max: int | None
    backlog: int | None
    backlog_s: float | None
    arrival_rate: float | None
    expected_rate: float | None
    rate: float | None
    busy: float | None
    hot_key_share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """The bounds in force, and the newest decisions, newest first."""

    pipeline: str
    bounds: Bounds
    decisions: tuple[RecordedDecision, ...]


def read_scaling(
    connection: Connection[TupleRow], pipeline: str, *, limit: int
) -> Scaling:
    """Read how a pipeline is scaled.

    Args:
        connection: To the home, outside a transaction.
        pipeline: The pipeline's name.
        limit: The greatest number of decisions to return.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``.
        RetryableError: The server went away.
    """
    with snapshot(connection, doing="reading how a pipeline is scaled"):
        fetch_pipeline(connection, pipeline)
        bounds = read_bounds(connection, pipeline)
        with connection.cursor(row_factory=class_row(RecordedDecision)) as cursor:
            decisions = cursor.execute(
                _SQL["newest_decisions"], {"pipeline": pipeline, "limit": limit}
            ).fetchall()
    return Scaling(pipeline=pipeline, bounds=bounds, decisions=tuple(decisions))
