"""Result tables with one row per event."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.ledger.output_kinds import APPEND, OutputKind
from tallyweir.sinks.postgres.outputs.output import (
    MovedRows,
    Output,
    ReplayPart,
    RowRefusedError,
    StagedField,
    VotedRows,
    fields_of_events,
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
from tallyweir.sinks.postgres.server.statements import fetch_row, load_statements
from tallyweir.sinks.postgres.tables.table_checks import (
    RowSkippedError,
    TypesChangedError,
    check_copyable,
    exact_sources,
)

_SQL = load_statements("tallyweir.sinks.postgres.outputs", "append_table.sql")

#: The only column of a task's receipt: how many rows it has copied.
COPIED_ROWS = Column(name="copied_rows", postgres_type="bigint")


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendTable(Output):
    """One row per event.

    Attributes:
        event_columns: The columns that the events give; their position is added.
        copied_by_tasks: Whether tasks copy rows into the table themselves, at least
            once, and stage only receipts of how many.
    """

    event_columns: tuple[Column, ...]
    copied_by_tasks: bool = False
    kind: ClassVar[OutputKind] = APPEND

    @property
    def columns(self) -> tuple[Column, ...]:
        return (*self.event_columns, *POSITION_COLUMNS)

    @property
    def read_columns(self) -> tuple[Column, ...]:
        return self.event_columns

    @property
    def staged_fields(self) -> tuple[StagedField, ...]:
        return fields_of_events(self.event_columns)

    @property
    def staging_columns(self) -> tuple[Column, ...]:
        return (COPIED_ROWS,) if self.copied_by_tasks else self.columns

    @property
    def takes_staged_rows(self) -> bool:
        return not self.copied_by_tasks

    @property
    def tables(self) -> dict[str, tuple[Column, ...]]:
        return {self.table: self.columns}

    def create(
        self,
        connection: psycopg.Connection[TupleRow],
        state: Callable[[str], sql.Identifier],
    ) -> None:
        del state
        if not create_or_check(connection, self.table, self.columns, per_value=True):
            self.check(connection)

    def check(self, connection: psycopg.Connection[TupleRow]) -> None:
        if self.copied_by_tasks:
            check_copyable(connection, self.table, self.columns)

    def move(self, voted: VotedRows, staged: str) -> MovedRows:
        if not voted.voted(staged):
            return MovedRows()
        if self.copied_by_tasks:
            return self._check_receipts(voted, staged)
        connection = voted.connection
        sources = exact_sources(connection, self.table, self.columns)
        statement = _SQL["move_append"].format(
            target=table_identifier(self.table),
            staging=voted.tables.staging(staged),
            columns=names(self.columns),
            sources=sources,
        )
        with row_refusals():
            moved = connection.execute(statement, voted.values).rowcount
        # The statement holds its lock now, so the types cannot change any more.
        if sources != exact_sources(connection, self.table, self.columns):
            raise TypesChangedError(self.table, "40001")
        if voted.count_skipped(staged, moved) > 0:
            raise RowRefusedError(RowSkippedError(moved))
        voted.check_moved(staged, moved)
        return MovedRows(staged=moved)

    def _check_receipts(self, voted: VotedRows, staged: str) -> MovedRows:
        """Check that this server still has the rows that tasks copied.

        A crash of the server or a failover may lose such rows. It loses the receipts
        as well, because they are in an unlogged table.
        """
        statement = _SQL["count_copied"].format(staging=voted.tables.staging(staged))
        receipts, copied = fetch_row(voted.connection, statement, voted.values)
        voted.check_moved(staged, receipts)
        rows = voted.tally.outputs[self.table].rows
        assert copied == rows, f"{copied} rows have receipts, {rows} were voted for"
        voted.check_types(self.tables)
        return MovedRows(staged=int(receipts))

    def described(self) -> dict[str, Any]:
        return {"columns": names_and_types(self.columns)}

    def replay_parts(self) -> Iterator[ReplayPart]:
        yield ReplayPart(
            name=self.table,
            table=self.table,
            keys=tuple(column.name for column in POSITION_COLUMNS),
            said=tuple(column.name for column in self.event_columns),
            has_positions=True,
            once=self.copied_by_tasks,
        )
