"""Redrives of an event's dead letters, and the copies that they sent to the topic.

The search finds a copy by the event's ID. It finds a letter whose ID could not be read
by its copy: the note of the redrive links the two.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from psycopg import Connection
from psycopg.rows import DictRow, TupleRow

from tallyweir.sinks.postgres.audit.fate import Fate
from tallyweir.sinks.postgres.audit.side_tables import DEAD_LETTERS
from tallyweir.sinks.postgres.ledger.audited_pipeline import fetch
from tallyweir.sinks.postgres.server.statements import load_statements

_SQL = load_statements("tallyweir.sinks.postgres.audit.why", "explanation.sql")

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
            _SQL["redrives"],
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
            _SQL["dead_letter_at"].format(told=DEAD_LETTERS.columns),
            pipeline=pipeline,
            topic=topic,
            partition=partition,
            offset=offset,
        )
    ]
