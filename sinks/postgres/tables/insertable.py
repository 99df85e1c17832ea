"""Does a user's own table take the rows that are written to it?"""

from __future__ import annotations

import psycopg
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.server.columns import table_identifier
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.errors import ConfigurationError

_SQL = load_statements("tallyweir.sinks.postgres.tables", "insertable.sql")

_Connection = psycopg.Connection[TupleRow]


class RowSkippedError(psycopg.DataError):
    """A table took fewer rows than it was given, and raised no error.

    Attributes:
        taken: Number of rows that it took.
    """

    #: The general data exception, because SQLSTATE has no code for this case.
    sqlstate = "22000"

    def __init__(self, taken: int) -> None:
        self.taken = taken
        super().__init__("a trigger of the table took no row and raised no error")


def check_insertable(connection: _Connection, table: str, *, is_updated: bool) -> None:
    """Refuse a table on which a rule or a trigger replaces each write.

    Args:
        connection: A connection to its database.
        table: Its name.
        is_updated: Whether batches also update and delete its rows.

    Raises:
        ConfigurationError: ``TABLE_HAS_RULE``.
    """
    found = connection.execute(
        _SQL["in_place_of_writes"],
        {
            "table": table_identifier(table).as_string(connection),
            "events": ["2", "3", "4"] if is_updated else ["3"],
        },
    ).fetchall()
    if found:
        what = ", ".join(f"{kind} {name}" for kind, name in found)
        raise ConfigurationError(
            "TABLE_HAS_RULE",
            saw=f"Table {table} has the {what}.",
            why="It replaces what the pipeline writes, so the pipeline could not know "
            "which rows are in the table.",
            fix="Drop it, or name another table. A BEFORE INSERT trigger may change "
            "rows, refuse them, or skip them.",
        )


def may_skip_rows(connection: _Connection, table: str) -> bool:
    """Tell whether a trigger of the table could skip rows that are written."""
    quoted = table_identifier(table).as_string(connection)
    row = connection.execute(_SQL["has_row_trigger"], {"table": quoted}).fetchone()
    return row is not None


def skips_rows(table: str, skipped: int) -> ConfigurationError:
    """Explain that a table skipped rows that it must take, or all of a batch."""
    return ConfigurationError(
        "TABLE_SKIPS_ROWS",
        saw=f"Table {table} silently skipped {skipped} rows: a BEFORE trigger "
        "returned NULL.",
        why="Rows of windows, functions and joins come from many events, so none can "
        "be left out as a dead letter; and an append table that accepts no row "
        "of a batch would turn the whole topic into dead letters.",
        fix="Let the trigger return NEW, or drop it. If it moves rows to another "
        "table, partition the table instead, or name the other table in the "
        "pipeline file.",
    )


def raises_always(
    table: str, cause: psycopg.Error, connection: _Connection
) -> ConfigurationError:
    """Explain that a table refuses even a statement without rows."""
    quoted = table_identifier(table).as_string(connection)
    triggers = connection.execute(_SQL["statement_triggers"], {"table": quoted})
    names = ", ".join(name for (name,) in triggers) or "none"
    return ConfigurationError(
        "TABLE_REFUSES_ALL",
        saw=f"Table {table} refuses even an INSERT without rows: {cause.sqlstate} "
        f"{cause.diag.message_primary}. Its statement triggers: {names}.",
        why="It would refuse every batch.",
        fix="Drop or disable the trigger, or name another table.",
    )
