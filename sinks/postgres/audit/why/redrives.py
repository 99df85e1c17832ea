"""Dead letters of an event that were sent to their topic again, and their copies there.

The copy is found by the event's ID. A letter whose ID could not be read is found by
its copy: the note of the redrive ties the two together.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from psycopg import Connection
from psycopg.rows import DictRow, TupleRow

from sinks.postgres.audit.fate import Fate
from sinks.postgres.audit.side_tables import DEAD_LETTERS
from sinks.postgres.ledger.audited_pipeline import fetch
from sinks.postgres.server.statements import load_statements

_SQL = load_statements("sinks.postgres.audit.why", "explanation.sql")

Place = tuple[str, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Redrive:
    """A dead letter that was sent to its topic again.

    Attributes:
        new_partition: Where the copy is; None if it is not known whether it was sent.
        new_offset: See ``new_partition``.
        sent_at: When Kafka had acknowledged it.
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
    """Find what was sent again from or to the positions of rows, in any order of time.

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
    """Read the dead letters that were sent again and are not among the rows known."""
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
