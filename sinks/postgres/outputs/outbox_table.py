"""Messages for Kafka, as they are staged and written to the home's outbox."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from psycopg import sql

from sinks.postgres.server.branch_names import HOME
from sinks.postgres.server.columns import POSITION_COLUMNS, Column

#: The key of a message and the producer's ID, as they are staged beside its fields.
OUTBOX_KEY = "tallyweir_key"
OUTBOX_EVENT_ID = Column(name="tallyweir_event_id", postgres_type="text")

#: What the home's outbox has of a message.
MESSAGE_COLUMNS = (
    *POSITION_COLUMNS,
    Column(name="topic", postgres_type="text"),
    Column(name="event_id", postgres_type="text"),
    Column(name="key", postgres_type="bytea"),
    Column(name="value", postgres_type="bytea"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxTable:
    """One message per event for a topic of Kafka, in the home's outbox.

    Attributes:
        table: What the ledger calls it; no table has this name.
        staging_table: Where tasks put the events first.
        topic: Where the relay sends the messages.
        fields: What a message holds.
        key: The event's column that gives the message's key, with its type.
    """

    table: str
    staging_table: str
    topic: str
    fields: tuple[Column, ...]
    key: Column
    kind: ClassVar[str] = "outbox"

    @property
    def branches(self) -> tuple[str, ...]:
        """Who publishes it: the home, whose outbox it is."""
        return (HOME,)

    @property
    def staging_columns(self) -> tuple[Column, ...]:
        key = Column(name=OUTBOX_KEY, postgres_type=self.key.postgres_type)
        return (*self.fields, key, OUTBOX_EVENT_ID, *POSITION_COLUMNS)

    @property
    def key_as_bytes(self) -> sql.Composable:
        """The key as Kafka gets it: bytes as they are, all else as text."""
        key = sql.Identifier(OUTBOX_KEY)
        if self.key.postgres_type == "bytea":
            return key
        return sql.SQL("convert_to({}::text, 'UTF8')").format(key)

    @property
    def tables(self) -> dict[str, tuple[Column, ...]]:
        """Return what readers see, by table: nothing but messages in Kafka."""
        return {}
