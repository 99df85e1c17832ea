"""Can several transactions of one database publish an output at the same time?

All branches of a batch are prepared before any of them commits. So a row that waits for
a row of another branch waits for its own batch until a timeout ends the wait, and every
retry of the batch waits again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import psycopg
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.server.columns import (
    POSITION_COLUMNS,
    Column,
    table_identifier,
)
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.errors import ConfigurationError

_SQL = load_statements("tallyweir.sinks.postgres.tables", "result_tables.sql")

_Connection = psycopg.Connection[TupleRow]


def check_branchable(
    connection: _Connection,
    tables: Iterable[str],
    split: Mapping[str, Sequence[Column]],
) -> None:
    """Refuse tables whose branches could wait for each other, or miss rows.

    Args:
        connection: A connection to a database in which all of the tables exist.
        tables: The pipeline's tables in that database.
        split: The tables among them that several transactions of the database publish,
            with the columns that the pipeline writes.

    Raises:
        ConfigurationError: ``TABLE_REFUSES_BRANCHES``.
    """
    for table, columns in split.items():
        _check_keys(connection, table, columns)
    if split:
        _check_references(
            connection, _quoted(connection, tables), _quoted(connection, split)
        )


def _quoted(connection: _Connection, tables: Iterable[str]) -> list[str]:
    return [table_identifier(table).as_string(connection) for table in tables]


def _check_keys(connection: _Connection, table: str, columns: Sequence[Column]) -> None:
    """Refuse keys on which rows of two events may conflict."""
    keys = connection.execute(
        _SQL["keys_over"],
        {
            "table": table_identifier(table).as_string(connection),
            "columns": sorted(column.name for column in columns),
            # No two events have one position.
            "apart": [column.name for column in POSITION_COLUMNS],
        },
    ).fetchall()
    if keys:
        raise _refused(
            f"Table {table} has the unique key {', '.join(key for (key,) in keys)}.",
            "Rows of one batch that have the same key would wait for each other in "
            "different branches, which commit together.",
        )


def _check_references(
    connection: _Connection, tables: list[str], split: list[str]
) -> None:
    """Refuse foreign keys to rows that another branch is about to publish."""
    found = connection.execute(
        _SQL["keys_between"], {"tables": tables, "split": split}
    ).fetchall()
    for table, referenced, key in found:
        raise _refused(
            f"Table {table} has the foreign key {key} to {referenced}, and both are "
            "tables of this pipeline.",
            (
                "A branch does not see the rows that other branches publish with it, "
                "so Postgres would refuse valid rows."
            ),
        )


def _refused(saw: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        "TABLE_REFUSES_BRANCHES",
        saw=saw,
        why=why,
        fix="Write branches: 1, or drop the key.",
    )
