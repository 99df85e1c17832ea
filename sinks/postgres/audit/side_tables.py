"""The tables of events that became no result, and what each of them tells."""

from __future__ import annotations

from dataclasses import dataclass

from psycopg import sql

from sinks.postgres.audit.fate import Fate


@dataclass(frozen=True, slots=True, kw_only=True)
class SideTable:
    """One table of the home's, for one fate.

    Attributes:
        name: In the schema ``tallyweir``.
        fate: Of its events. The ledger counts them in a column of that name.
        called: One of its events, in a sentence.
        told: Its columns beside where and in which batch, and beside the event's ID.
    """

    name: str
    fate: Fate
    called: str
    told: tuple[str, ...] = ()

    @property
    def columns(self) -> sql.Composed:
        """What is told of an event, and in which batch."""
        return sql.SQL(", ").join(map(sql.Identifier, ("sequence", *self.told)))


DEAD_LETTERS = SideTable(
    name="dead_letter",
    fate=Fate.DEAD,
    called="a dead letter",
    told=("kafka_timestamp", "reason", "detail", "key", "payload"),
)

#: Those of events that became nothing else: what the view ``put_aside`` has.
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
