"""Messages for Kafka, as they are staged and written to the home's outbox."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.ledger.output_kinds import OUTBOX, OutputKind
from tallyweir.sinks.postgres.outputs.output import (
    MovedRows,
    Output,
    ReplayPart,
    StagedField,
    VotedRows,
    fields_of_events,
)
from tallyweir.sinks.postgres.server.columns import POSITION_COLUMNS, Column
from tallyweir.sinks.postgres.server.statements import fetch_row, load_statements
from tallyweir.sinks.postgres.tables.row_digest import (
    RESULTS,
    RowDigest,
    row_hash,
    stored,
)

_SQL = load_statements("tallyweir.sinks.postgres.outputs", "outbox_table.sql")

#: The staged columns that follow a message's fields: its key and the producer's ID.
OUTBOX_KEY = "tallyweir_key"
OUTBOX_EVENT_ID = Column(name="tallyweir_event_id", postgres_type="text")

#: The columns of a message in the home's outbox.
MESSAGE_COLUMNS = (
    *POSITION_COLUMNS,
    Column(name="topic", postgres_type="text"),
    Column(name="event_id", postgres_type="text"),
    Column(name="key", postgres_type="bytea"),
    Column(name="value", postgres_type="bytea"),
)

#: The messages of a pipeline that the relay has not sent yet.
_OUTBOX = ReplayPart(
    name="outbox",
    table="outbox",
    keys=("sequence", *(column.name for column in POSITION_COLUMNS), "topic"),
    said=("event_id", "key", "value"),
    is_ledger=True,
    has_positions=True,
    only_waiting=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxTable(Output):
    """One message per event for a topic of Kafka, in the home's outbox.

    The home publishes it, because the home has the outbox. No table has its name.

    Attributes:
        topic: Where the relay sends the messages.
        fields: What a message holds.
        key: The event's column that gives the message's key, with its type.
    """

    topic: str
    fields: tuple[Column, ...]
    key: Column
    kind: ClassVar[OutputKind] = OUTBOX

    @property
    def read_columns(self) -> tuple[Column, ...]:
        return (*self.fields, self.key)

    @property
    def staged_fields(self) -> tuple[StagedField, ...]:
        return fields_of_events(self.fields)

    @property
    def staging_columns(self) -> tuple[Column, ...]:
        key = replace(self.key, name=OUTBOX_KEY)
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
        """No tables: readers see the messages in Kafka, where the relay sends them."""
        return {}

    def create(
        self,
        connection: psycopg.Connection[TupleRow],
        state: Callable[[str], sql.Identifier],
    ) -> None:
        """Do nothing: a migration has created the home's outbox."""

    def move(self, voted: VotedRows, staged: str) -> MovedRows:
        if not voted.voted(staged):
            return MovedRows()
        statement = _SQL["move_outbox"].format(
            topic=sql.Literal(self.topic),
            event_id=sql.Identifier(OUTBOX_EVENT_ID.name),
            key=self.key_as_bytes,
            fields=sql.SQL(", ").join(field.as_json for field in self.fields),
            staging=voted.tables.staging(staged),
            hash=row_hash(stored(MESSAGE_COLUMNS)),
        )
        rows, total = fetch_row(voted.connection, statement, voted.values)
        moved = RowDigest(rows, int(total))
        voted.check_moved(staged, moved.rows)
        return MovedRows(staged=moved.rows, digests={RESULTS: moved})

    def described(self) -> dict[str, Any]:
        return {}

    def replay_parts(self) -> Iterator[ReplayPart]:
        yield _OUTBOX
