"""Rows that a replay is held against."""

from __future__ import annotations

from dataclasses import dataclass

from psycopg import sql

from sinks.postgres.server.branch_names import HOME
from sinks.postgres.server.columns import Column, table_identifier

#: Where tables of ours are.
_LEDGER = "tallyweir"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPart:
    """Rows of one table, or of its shards, to be held against each other.

    Attributes:
        name: As people know it.
        table: As the pipeline's file names it, or as the ledger does.
        output: The output whose it is; None for tables of the ledger.
        keys: What its rows are told apart by; all that they say if empty.
        said: What they say besides.
        databases: Where they are.
        is_state: Whether it is the state of a window output: ``table`` is the output's.
        is_ledger: Whether it is a table of ours, with the rows of all pipelines.
        has_positions: Whether its rows are those of records.
        needs_all: Whether a row may come of batches before those that are replayed.
        only_waiting: Whether rows go that others have taken.
        once: Whether rows may be there several times.
        written_in: The column with the batch that has written a row, if any has.
        lateness_us: Of windows, how long after their end they may still change.
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
    """Name the columns that are no keys."""
    return tuple(column.name for column in columns if column.name not in keys)
