"""Dead letters: by reason, one by one, one with its record, and their redrives.

The search for an event finds a redriven copy by the event's ID. It finds a letter whose
ID could not be read by its copy: the note of the redrive links the two.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from psycopg import Connection
from psycopg.rows import DictRow, TupleRow

from tallyweir.sinks.postgres.audit.fate import DEAD_LETTERS, Fate
from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    AuditedSource,
    fetch,
    read_pipeline,
    snapshot,
)
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.errors import ConfigurationError

_DEAD_LETTERS = load_statements(
    "tallyweir.sinks.postgres.audit.why", "dead_letters.sql"
)

#: Joins the newest redrive of ``letter`` as ``note``.
NEWEST_NOTE = _DEAD_LETTERS["newest_note"]
#: A condition for statements that select from ``letter``.
IS_ERASED = _DEAD_LETTERS["is_erased"]
_IS_NEWEST = _DEAD_LETTERS["is_newest"]
_GROUPS = _DEAD_LETTERS["groups"].format(is_newest=_IS_NEWEST)
_PAGE = _DEAD_LETTERS["page"].format(newest_note=NEWEST_NOTE, is_newest=_IS_NEWEST)

#: How many letters make one page.
PAGE = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterGroup:
    """Dead letters of one reason; a record counts once, by its newest letter.

    Attributes:
        redriven: How many of them were redriven.
        last_sequence: The newest batch that has one.
        first_at: Kafka's timestamp of the oldest record.
        last_at: Kafka's timestamp of the newest record.
        last_detail: The detail of one in the newest batch.
    """

    reason: str
    letters: int
    redriven: int
    last_sequence: int
    first_at: datetime | None
    last_at: datetime | None
    last_detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """One record that could not become a result.

    Attributes:
        redriven_at: When it was last redriven; None if it never was.
        new_partition: The partition of its copy; None if it is not known to be sent.
        new_offset: The offset of its copy; None likewise.
    """

    topic: str
    partition: int
    offset: int
    sequence: int
    kafka_timestamp: datetime | None
    reason: str
    detail: str
    event_id: str | None
    payload_bytes: int | None
    redriven_at: datetime | None
    new_partition: int | None
    new_offset: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterRedrive:
    """One redrive of a dead letter, as the home has noted it."""

    attempt: int
    reason: str
    asked_by: str
    asked_at: datetime
    new_partition: int | None
    new_offset: int | None
    sent_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeLetter:
    """A dead letter with what its record holds, for readers who may see that.

    Attributes:
        redrives: Every redrive of it, oldest first.
        source: What its pipeline reads.
    """

    reason: str
    detail: str
    event_id: str | None
    sequence: int
    kafka_timestamp: datetime | None
    key: bytes | None = field(repr=False)
    payload: bytes | None = field(repr=False)
    redrives: tuple[LetterRedrive, ...]
    source: AuditedSource


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
        rows = fetch(connection, _GROUPS, pipeline=pipeline)
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

    A record that died several times appears once, with its newest letter.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``.
        RetryableError: The server went away.
    """
    with snapshot(connection, doing="reading dead letters"):
        read_pipeline(connection, pipeline)
        rows = fetch(
            connection,
            _PAGE,
            pipeline=pipeline,
            reason=reason,
            skipped=skipped,
            limit=limit,
        )
    return tuple(DeadLetter(**row) for row in rows)


def read_letter(
    connection: Connection[TupleRow],
    pipeline: str,
    *,
    topic: str,
    partition: int,
    offset: int,
) -> WholeLetter:
    """Read the newest dead letter of the record at a position.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``, ``LETTER_UNKNOWN``, or the role may
            not read what records hold.
        RetryableError: The server went away.
    """
    values = {
        "pipeline": pipeline,
        "topic": topic,
        "partition": partition,
        "offset": offset,
    }
    with snapshot(connection, doing="reading a dead letter"):
        audited = read_pipeline(connection, pipeline)
        rows = fetch(connection, _DEAD_LETTERS["letter"], **values)
        redrives = fetch(connection, _DEAD_LETTERS["redrives"], **values)
    if not rows:
        raise ConfigurationError(
            "LETTER_UNKNOWN",
            saw=f"Pipeline {pipeline} has no dead letter {topic}/{partition}/{offset}.",
            why="Topic, partition and offset of its record identify a dead letter.",
            fix=f"tallyweir dead-letters list {pipeline} shows all dead letters.",
        )
    return WholeLetter(
        **rows[0],
        redrives=tuple(LetterRedrive(**row) for row in redrives),
        source=audited.source,
    )


_EXPLANATION = load_statements("tallyweir.sinks.postgres.audit.why", "explanation.sql")

Place = tuple[str, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Redrive:
    """A dead letter that was sent to its topic again.

    Attributes:
        new_partition: The copy's partition; None if it is not known to be sent.
        new_offset: The copy's offset; None likewise.
        sent_at: When Kafka had acknowledged the copy.
    """

    topic: str
    partition: int
    offset: int
    new_partition: int | None
    new_offset: int | None
    reason: str
    asked_by: str
    asked_at: datetime
    sent_at: datetime | None

    @property
    def old(self) -> Place:
        return self.topic, self.partition, self.offset


def find_redrives(
    connection: Connection[TupleRow], pipeline: str, found: Iterable[DictRow]
) -> tuple[Redrive, ...]:
    """Find the redrives from or to the positions of rows, earlier and later ones.

    Works in the caller's snapshot.
    """
    places = {(row["topic"], row["partition"], row["offset"]) for row in found}
    notes = {
        Redrive(**row): None
        for topic, partition, offset in sorted(places)
        for row in fetch(
            connection,
            _EXPLANATION["redrives"],
            pipeline=pipeline,
            topic=topic,
            partition=partition,
            offset=offset,
        )
    }
    return tuple(notes)


def letters_of(
    connection: Connection[TupleRow],
    pipeline: str,
    redrives: Iterable[Redrive],
    *,
    known: Iterable[DictRow],
) -> list[DictRow]:
    """Read the redriven dead letters that are not among the known rows."""
    seen = {
        (row["topic"], row["partition"], row["offset"])
        for row in known
        if row["fate"] is Fate.DEAD
    }
    wanted = sorted({one.old for one in redrives} - seen)
    return [
        {**row, "fate": Fate.DEAD, "output": None}
        for topic, partition, offset in wanted
        for row in fetch(
            connection,
            _EXPLANATION["dead_letter_at"].format(told=DEAD_LETTERS.columns),
            pipeline=pipeline,
            topic=topic,
            partition=partition,
            offset=offset,
        )
    ]
