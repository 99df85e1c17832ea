"""The ledger for people to look through: batch by batch, and added up over time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import Connection
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    fetch,
    read_pipeline,
    snapshot,
)
from tallyweir.sinks.postgres.server.statements import load_statements

_SQL = load_statements("tallyweir.sinks.postgres.audit.status", "batches.sql")

#: How many batches make one page.
PAGE = 50
_AFTER_ALL = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerBatch:
    """One published batch.

    Attributes:
        ranges: Topic, partition, first offset, and the offset after the last.
        restagings: How often it was staged again without rows that Postgres refused.
        stage_s: Seconds from its plan to the last vote.
        publish_s: Seconds from then to its row in the ledger, waits included.
        branches: How many branches commit it, or have done so.
    """

    sequence: int
    epoch: int
    guarantee: str
    restagings: int
    watermark_after: datetime | None
    planned_at: datetime
    published_at: datetime
    stage_s: float
    publish_s: float
    read: int
    committed: int
    duplicate: int
    dead: int
    late: int
    expired: int
    filtered: int
    ranges: list[tuple[str, int, int, int]]
    branches: int
    branches_in_doubt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotOfTime:
    """The batches that were published in a slot of time, added up.

    Attributes:
        began_s: When the slot began, in seconds since 1970.
        batch_p50_s: The median of the seconds from plan to publish.
        batch_p95_s: The 95th percentile of the same.
    """

    began_s: int
    batches: int
    read: int
    duplicate: int
    dead: int
    late: int
    batch_p50_s: float
    batch_p95_s: float


def read_batches(
    connection: Connection[TupleRow],
    pipeline: str,
    *,
    before: int | None = None,
    limit: int = PAGE,
) -> tuple[LedgerBatch, ...]:
    """Read the newest batches, or those before a given one, newest first.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``.
        RetryableError: The server went away.
    """
    rows = _read(
        connection,
        pipeline,
        "page",
        before=_AFTER_ALL if before is None else before,
        limit=limit,
    )
    return tuple(LedgerBatch(**row) for row in rows)


def read_history(
    connection: Connection[TupleRow], pipeline: str, *, slot_s: int, slots: int
) -> tuple[SlotOfTime, ...]:
    """Add up the newest batches over slots of time, oldest first.

    A slot in which nothing was published is left out.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``.
        RetryableError: The server went away.
    """
    rows = _read(connection, pipeline, "history", slot_s=slot_s, slots=slots)
    return tuple(SlotOfTime(**row) for row in rows)


def _read(
    connection: Connection[TupleRow], pipeline: str, statement: str, **values: object
) -> list[Mapping[str, Any]]:
    with snapshot(connection, doing="reading the ledger"):
        read_pipeline(connection, pipeline)
        return list(fetch(connection, _SQL[statement], pipeline=pipeline, **values))
