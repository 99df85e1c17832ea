"""The acts on a pipeline, and its forks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import Connection
from psycopg.rows import TupleRow, class_row

from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    fetch_pipeline,
    read_pipeline,
    snapshot,
)
from tallyweir.sinks.postgres.server.statements import load_statements

_SQL = load_statements("tallyweir.sinks.postgres.audit.status", "acts.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedAct:
    """A row of ``tallyweir.act``.

    Attributes:
        epoch: The act's claim; greater epochs came later.
        after_sequence: The last batch that was published before the act.
        detail: What the act changed; the keys depend on its kind.
        done_by: The login, after the person for whom a service acted, if there is one.
        resumed_by: Who ended it, if it is a pause that has ended.
    """

    epoch: int
    kind: str
    reason: str
    after_sequence: int
    detail: Mapping[str, Any]
    done_by: str
    done_at: datetime
    resumed_by: str | None
    resumed_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFork:
    """A pipeline that works in the shadow of another.

    Attributes:
        tables: Tables that readers know, each with its shadow.
        last_sequence: The fork's last batch.
        behind: Offsets that the pipeline in front has read and the fork has not; while
            there are any, the two cannot change places.
    """

    pipeline: str
    tables: Sequence[tuple[str, str]]
    last_sequence: int
    behind: int


def read_acts(
    connection: Connection[TupleRow],
    pipeline: str,
    *,
    before: int | None = None,
    limit: int,
) -> tuple[RecordedAct, ...]:
    """Read the acts on a pipeline, the newest first.

    Args:
        connection: To the home, outside a transaction. Nothing is written.
        pipeline: The pipeline's name.
        before: Return only acts of smaller epochs; None for all.
        limit: The greatest number of acts to return.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``.
        RetryableError: The server went away.
    """
    with snapshot(connection, doing="reading the acts on a pipeline"):
        fetch_pipeline(connection, pipeline)
        values = {"pipeline": pipeline, "before": before, "limit": limit}
        with connection.cursor(row_factory=class_row(RecordedAct)) as cursor:
            return tuple(cursor.execute(_SQL["acts"], values).fetchall())


def read_forks(
    connection: Connection[TupleRow], pipeline: str
) -> tuple[KnownFork, ...]:
    """Read which pipelines work in the shadow of this one, by name.

    Args:
        connection: To the home, outside a transaction. Nothing is written.
        pipeline: The pipeline in front.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``.
        RetryableError: The server went away.
    """
    with snapshot(connection, doing="reading the forks of a pipeline"):
        outputs = read_pipeline(connection, pipeline).outputs
        values = {"pipeline": pipeline, "tables": [one.table for one in outputs]}
        with connection.cursor(row_factory=class_row(KnownFork)) as cursor:
            return tuple(cursor.execute(_SQL["forks"], values).fetchall())
