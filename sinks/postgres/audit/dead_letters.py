"""Dead letters by reason, and one by one, without what the records hold."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from psycopg import Connection
from psycopg.rows import TupleRow

from sinks.postgres.audit.audited_pipeline import fetch, read_pipeline, snapshot
from sinks.postgres.statements import load_statements

_SQL = load_statements("sinks.postgres.audit", "dead_letters.sql")

#: Letters of one page.
PAGE = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterGroup:
    """Dead letters of one reason.

    Attributes:
        last_sequence: The newest batch that has one.
        first_at: Kafka's time of the oldest record.
        last_at: Of the newest.
        last_detail: Of one in the newest batch.
    """

    reason: str
    letters: int
    last_sequence: int
    first_at: datetime | None
    last_at: datetime | None
    last_detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """One record that could not become a result."""

    topic: str
    partition: int
    offset: int
    sequence: int
    kafka_timestamp: datetime | None
    reason: str
    detail: str
    event_id: str | None
    payload_bytes: int | None


def group_dead_letters(
    connection: Connection[TupleRow], pipeline: str
) -> tuple[DeadLetterGroup, ...]:
    """Count a pipeline's dead letters by reason, most frequent first.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``.
        RetryableError: The server went away.
    """
    with snapshot(connection, doing="reading dead letters"):
        read_pipeline(connection, pipeline)
        rows = fetch(connection, _SQL["groups"], pipeline=pipeline)
    return tuple(DeadLetterGroup(**row) for row in rows)


def read_dead_letters(
    connection: Connection[TupleRow],
    pipeline: str,
    reason: str,
    *,
    skipped: int = 0,
    limit: int = PAGE,
) -> tuple[DeadLetter, ...]:
    """Read dead letters of one reason, those of the newest batches first.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``.
        RetryableError: The server went away.
    """
    with snapshot(connection, doing="reading dead letters"):
        read_pipeline(connection, pipeline)
        rows = fetch(
            connection,
            _SQL["page"],
            pipeline=pipeline,
            reason=reason,
            skipped=skipped,
            limit=limit,
        )
    return tuple(DeadLetter(**row) for row in rows)
