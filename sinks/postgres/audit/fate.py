"""The fates of a copy of an event, and the tables of events that became no result."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from psycopg import sql


class Fate(Enum):
    """The fate of one copy of an event."""

    COMMITTED = "committed"
    DUPLICATE = "duplicate"
    DEAD = "dead"
    LATE = "late"
    EXPIRED = "expired"
    FILTERED = "filtered"
    REPLACED = "replaced"


@dataclass(frozen=True, slots=True, kw_only=True)
class SideTable:
    """One table in the home database, for one fate.

    Attributes:
        name: Name in the schema ``tallyweir``.
        fate: Fate of its events; the ledger counts them in a column of that name.
        called: What a sentence calls one of its events.
        told: Its columns other than the position, the batch and the event's ID.
    """

    name: str
    fate: Fate
    called: str
    told: tuple[str, ...] = ()

    @property
    def columns(self) -> sql.Composed:
        """The columns that describe an event, and the sequence of its batch."""
        return sql.SQL(", ").join(map(sql.Identifier, ("sequence", *self.told)))


DEAD_LETTERS = SideTable(
    name="dead_letter",
    fate=Fate.DEAD,
    called="a dead letter",
    told=("kafka_timestamp", "reason", "detail", "key", "payload"),
)

#: Tables of events that became nothing else, as in the view ``put_aside``.
PUT_ASIDE = (
    DEAD_LETTERS,
    SideTable(
        name="expired_event",
        fate=Fate.EXPIRED,
        called="an expired event",
        told=("event_time", "payload"),
    ),
    SideTable(name="duplicate_event", fate=Fate.DUPLICATE, called="a duplicate"),
    SideTable(
        name="filtered_event",
        fate=Fate.FILTERED,
        called="a filtered event",
        told=("condition",),
    ),
)

#: An event may be late for one output and in time for another.
LATE_EVENTS = SideTable(
    name="late_event",
    fate=Fate.LATE,
    called="a late event",
    told=("output_table", "event_time", "payload"),
)
