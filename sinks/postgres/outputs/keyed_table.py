"""Outputs of functions that keep state for each key: result rows, state and timers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.ledger.output_kinds import STATEFUL, OutputKind
from tallyweir.sinks.postgres.outputs.output import (
    MovedRows,
    Output,
    ReplayPart,
    StagedField,
    VotedRows,
    fields_of_events,
    others,
    row_refusals,
)
from tallyweir.sinks.postgres.outputs.result_tables import create_or_check
from tallyweir.sinks.postgres.server.columns import (
    POSITION_COLUMNS,
    Column,
    names,
    names_and_types,
    table_identifier,
)
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.postgres.tables.row_digest import RESULTS, change_digested, stored
from tallyweir.sinks.postgres.tables.table_checks import skips_rows

_SQL = load_statements("tallyweir.sinks.postgres.outputs", "keyed_table.sql")

#: The columns by which phase 2b reads the staged events.
KEY = Column(name="tallyweir_key", postgres_type="text")
SHARD = Column(name="tallyweir_shard", postgres_type="integer")
EVENT_TIME = Column(
    name="tallyweir_event_time", postgres_type="timestamp with time zone"
)

#: The number of a result among the rows of its key, and the batch that brought it.
ORDINAL = Column(name="tallyweir_ordinal", postgres_type="integer")
SEQUENCE = Column(name="tallyweir_sequence", postgres_type="bigint")

#: Changes of state and timers, staged by phase 2b for all stateful outputs together.
KEYED_LOGS: Mapping[str, tuple[Column, ...]] = {
    "keyed_state": (
        Column(name="output_table", postgres_type="text"),
        Column(name="key", postgres_type="text"),
        Column(name="name", postgres_type="text"),
        Column(name="entry", postgres_type="text"),
        # put, delete, or clear for every entry of the name.
        Column(name="change", postgres_type="text"),
        Column(name="value", postgres_type="text"),
        Column(name="schema_version", postgres_type="integer"),
        Column(name="expires_at", postgres_type="timestamp with time zone"),
    ),
    "keyed_timer": (
        Column(name="output_table", postgres_type="text"),
        Column(name="key", postgres_type="text"),
        Column(name="name", postgres_type="text"),
        Column(name="shard", postgres_type="integer"),
        Column(name="clock", postgres_type="text"),
        # None for a timer that has fired or is cancelled.
        Column(name="fires_at", postgres_type="timestamp with time zone"),
    ),
}

#: State and timers of all of a pipeline's keyed tables.
_KEYED_PARTS = (
    ReplayPart(
        name="keyed_state",
        table="keyed_state",
        keys=("output_table", "key", "name", "entry"),
        said=("value", "schema_version", "expires_at", "sequence"),
        is_ledger=True,
        needs_all=True,
    ),
    ReplayPart(
        name="keyed_timer",
        table="keyed_timer",
        keys=("output_table", "key", "name"),
        said=("shard", "clock", "fires_at", "sequence"),
        is_ledger=True,
        needs_all=True,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedTable(Output):
    """The rows that a function on keyed state returns.

    The home publishes it, because the home has the state. Phase one stages the
    function's events.

    Attributes:
        event_columns: The columns of an event that the function gets.
        key: The columns that make its keys.
        columns: The columns that the function returns.
    """

    event_columns: tuple[Column, ...]
    key: tuple[Column, ...]
    columns: tuple[Column, ...]
    kind: ClassVar[OutputKind] = STATEFUL

    @property
    def read_columns(self) -> tuple[Column, ...]:
        return (*self.key, *self.event_columns)

    @property
    def function_columns(self) -> tuple[Column, ...]:
        return self.event_columns

    @property
    def text_key(self) -> tuple[Column, ...]:
        return self.key

    @property
    def staged_fields(self) -> tuple[StagedField, ...]:
        return fields_of_events(self.event_columns)

    @property
    def staging_columns(self) -> tuple[Column, ...]:
        return (*self.event_columns, *POSITION_COLUMNS, EVENT_TIME, KEY, SHARD)

    @property
    def keyed(self) -> Self:
        return self

    @property
    def rows_staging_table(self) -> str:
        """Where phase 2b puts the result rows."""
        return f"{self.staging_table}_rows"

    @property
    def rows_staging_columns(self) -> tuple[Column, ...]:
        return (*self.key, *self.columns, ORDINAL)

    @property
    def result_columns(self) -> tuple[Column, ...]:
        return (*self.rows_staging_columns, SEQUENCE)

    @property
    def keyed_staging(self) -> Mapping[str, tuple[Column, ...]]:
        return {self.rows_staging_table: self.rows_staging_columns, **KEYED_LOGS}

    @property
    def tables(self) -> dict[str, tuple[Column, ...]]:
        return {self.table: self.result_columns}

    def create(
        self,
        connection: psycopg.Connection[TupleRow],
        state: Callable[[str], sql.Identifier],
    ) -> None:
        del state
        if create_or_check(connection, self.table, self.result_columns):
            connection.execute(
                _SQL["add_sequence_index"].format(target=table_identifier(self.table))
            )

    def move(self, voted: VotedRows, staged: str) -> MovedRows:
        del staged
        results = self.rows_staging_table
        if not voted.voted(results):
            return MovedRows()
        columns = self.rows_staging_columns
        statement = _SQL["move_results"].format(
            target=table_identifier(self.table),
            staging=voted.tables.staging(results),
            columns=names(columns),
            sources=sql.SQL(", ").join(column.from_staging for column in columns),
        )
        with row_refusals():
            moved = change_digested(
                voted.connection, statement, stored(self.result_columns), voted.values
            )
        voted.check_types(self.tables)
        skipped = voted.count_skipped(results, moved.rows)
        if skipped > 0:
            raise skips_rows(self.table, skipped)
        voted.check_moved(results, moved.rows)
        return MovedRows(staged=moved.rows, digests={RESULTS: moved})

    def described(self) -> dict[str, Any]:
        return {
            "columns": names_and_types(self.result_columns),
            "key": names_and_types(self.key),
        }

    def replay_parts(self) -> Iterator[ReplayPart]:
        keys = (SEQUENCE.name, *(column.name for column in self.key), ORDINAL.name)
        yield ReplayPart(
            name=self.table,
            table=self.table,
            keys=keys,
            said=others(self.result_columns, keys),
            needs_all=True,
        )
        yield from _KEYED_PARTS
