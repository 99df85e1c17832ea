"""The rows that a replay compares."""

from __future__ import annotations

from dataclasses import dataclass

from psycopg import sql

from tallyweir.sinks.postgres.server.branch_names import HOME
from tallyweir.sinks.postgres.server.columns import Column, table_identifier

#: The schema of Tallyweir's own tables.
_LEDGER = "tallyweir"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPart:
    """Rows of one table, or of its shards, that a replay compares.

    Attributes:
        name: The name shown to people.
        table: The table's name in the pipeline's file, or in the ledger.
        output: The output that it belongs to; None for tables of the ledger.
        keys: Columns that identify a row; if empty, all of its values do.
        said: The other columns that are compared.
        databases: The databases that hold it.
        is_state: Whether it is the state of a window output: ``table`` is the output's.
        is_ledger: Whether it is a table of Tallyweir's, with the rows of all pipelines.
        has_positions: Whether each row belongs to the position of a record.
        needs_all: Whether a row may depend on batches before those that are replayed.
        only_waiting: Whether rows leave the table once another process has taken them.
        once: Whether the table may have several copies of a row, which count as one.
        written_in: The column with the batch that wrote a row, if there is one.
        lateness_us: For windows, how long after their end they may still change.
    """

    name: str
    table: str
    keys: tuple[str, ...]
    said: tuple[str, ...]
    output: str | None = None
    databases: tuple[str, ...] = (HOME,)
    is_state: bool = False
    is_ledger: bool = False
    has_positions: bool = False
    needs_all: bool = False
    only_waiting: bool = False
    once: bool = False
    written_in: str | None = None
    lateness_us: int | None = None

    @property
    def has_sequence(self) -> bool:
        return self.is_ledger and "sequence" in (*self.keys, *self.said)

    @property
    def identifier(self) -> sql.Identifier:
        if self.is_ledger:
            return sql.Identifier(_LEDGER, self.table)
        return table_identifier(self.table)


def others(columns: tuple[Column, ...], keys: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the columns that are not keys."""
    return tuple(column.name for column in columns if column.name not in keys)
