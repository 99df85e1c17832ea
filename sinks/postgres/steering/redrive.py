"""Selects the dead letters to redrive, and writes the notes of redrives.

A letter is noted before it is sent, and again when Kafka has acknowledged it. In
between, its note says that it may have been sent. Neither note disturbs a driver, which
reads the copy like any other record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

from psycopg import Connection
from psycopg.rows import TupleRow, class_row

from tallyweir.sinks.postgres.audit.why.dead_letters import IS_ERASED, NEWEST_NOTE
from tallyweir.sinks.postgres.ledger.audited_pipeline import AuditedPipeline, fetch_one
from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    read_pipeline as read_audited,
)
from tallyweir.sinks.postgres.server.sqlstate import translated
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.errors import RetryableError

_SQL = load_statements("tallyweir.sinks.postgres.steering", "redrive.sql")
_NEXT_LETTERS = _SQL["next_letters"].format(
    newest_note=NEWEST_NOTE, is_erased=IS_ERASED
)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class RecordPosition:
    """The position at which a record was read."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


#: A position before every record.
_BEGINNING = RecordPosition(topic="", partition=-1, offset=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveSelection:
    """The dead letters to redrive; all of the pipeline if nothing else is given.

    Attributes:
        group: Only the letters of this reason.
        record: Only the letter of the record that was read there.
    """

    pipeline: str
    group: str | None = None
    record: RecordPosition | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingLetter:
    """A dead letter as it is sent, with the newest note about it.

    Attributes:
        attempts: How many attempts to send it were noted.
        sent_at: When Kafka had acknowledged the last attempt.
        asked_at: When the last attempt was noted.
        is_of_version_in_force: Whether the pipeline's version in force read the record.
    """

    topic: str
    partition: int
    offset: int
    reason: str
    event_id: str | None
    key: bytes | None = field(repr=False)
    payload: bytes | None = field(repr=False)
    attempts: int
    sent_at: datetime | None
    asked_at: datetime | None
    is_of_version_in_force: bool

    @property
    def position(self) -> RecordPosition:
        return RecordPosition(
            topic=self.topic, partition=self.partition, offset=self.offset
        )

    @property
    def is_sent(self) -> bool:
        """Whether the letter is in its topic again."""
        return self.sent_at is not None


@contextmanager
def redriving(
    connection: Connection[TupleRow], pipeline: str
) -> Iterator[AuditedPipeline]:
    """Hold the lock on a pipeline's redrives, so that no other session redrives.

    Args:
        connection: To the home, outside a transaction. A pooler in between must keep
            the session.
        pipeline: The pipeline's name.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``.
        RetryableError: ``REDRIVE_AT_WORK``, or the server went away.
    """
    with translated("reading a pipeline"), connection.transaction():
        audited = read_audited(connection, pipeline)
        locked = fetch_one(connection, _SQL["try_lock"], pipeline=pipeline)
    if not locked["is_locked"]:
        raise RetryableError(
            "REDRIVE_AT_WORK",
            saw=f"Another process is redriving dead letters of {pipeline}.",
            why="The same letters would be sent twice.",
            fix="Wait until it has ended; letters that it has sent are then skipped.",
        )
    try:
        yield audited
    finally:
        # If the session is gone, Postgres has released the lock.
        if not connection.closed and not connection.broken:
            with connection.transaction():
                connection.execute(_SQL["unlock"], {"pipeline": pipeline})


def read_letters(
    connection: Connection[TupleRow],
    selection: RedriveSelection,
    *,
    through_sequence: int,
    after: RecordPosition = _BEGINNING,
    limit: int,
) -> list[WaitingLetter]:
    """Read the next letters of a selection, in the order of their positions.

    A record that died several times has only its newest letter here, because it is sent
    once.

    Args:
        connection: To the home, outside a transaction.
        selection: Which letters to read.
        through_sequence: The last batch whose letters count.
        after: The last position that was read before.
        limit: The greatest number of letters to read.

    Raises:
        RetryableError: The server went away.
    """
    record = selection.record
    values = {
        "pipeline": selection.pipeline,
        "group": selection.group,
        "topic": record and record.topic,
        "partition": record and record.partition,
        "offset": record and record.offset,
        "after_topic": after.topic,
        "after_partition": after.partition,
        "after_offset": after.offset,
        "through_sequence": through_sequence,
        "limit": limit,
    }
    with translated("reading dead letters"), connection.transaction():  # noqa: SIM117
        with connection.cursor(row_factory=class_row(WaitingLetter)) as cursor:
            return cursor.execute(_NEXT_LETTERS, values).fetchall()


def begin_redrive(
    connection: Connection[TupleRow],
    pipeline: str,
    letters: Sequence[WaitingLetter],
    *,
    reason: str,
) -> None:
    """Note that letters are about to be sent.

    Raises:
        RetryableError: The server went away.

    Crash:
        Before the COMMIT nothing has changed. After it each of them may have been
        sent, as far as the notes can tell.
    """
    with translated("recording dead letters to redrive"), connection.transaction():
        connection.cursor().executemany(
            _SQL["begin"],
            [
                {**_key(pipeline, one.position, one.attempts + 1), "reason": reason}
                for one in letters
            ],
        )


def note_sent(
    connection: Connection[TupleRow],
    pipeline: str,
    sent: Sequence[tuple[WaitingLetter, int, int]],
) -> None:
    """Note where Kafka has acknowledged letters: each with its partition and offset.

    Raises:
        RetryableError: The server went away.

    Crash:
        Before the COMMIT they are in Kafka but not noted, so the next redrive of them
        sends them again: copies of the same event. After it they are skipped.
    """
    with translated("recording redriven dead letters"), connection.transaction():
        connection.cursor().executemany(
            _SQL["note_sent"],
            [
                {
                    **_key(pipeline, letter.position, letter.attempts + 1),
                    "new_partition": partition,
                    "new_offset": offset,
                }
                for letter, partition, offset in sent
            ],
        )


def _key(pipeline: str, position: RecordPosition, attempt: int) -> dict[str, object]:
    return {
        "pipeline": pipeline,
        "topic": position.topic,
        "partition": position.partition,
        "offset": position.offset,
        "attempt": attempt,
    }
