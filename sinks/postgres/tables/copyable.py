"""Can tasks copy their rows straight into a user's own table, at least once?"""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.server.columns import Column, table_identifier
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.errors import ConfigurationError

_SQL = load_statements("tallyweir.sinks.postgres.tables", "result_tables.sql")


def check_copyable(
    connection: psycopg.Connection[TupleRow], table: str, columns: Sequence[Column]
) -> None:
    """Refuse a table whose types COPY does not fit, or whose keys refuse repeated rows.

    Args:
        connection: A connection to its database.
        table: Its name.
        columns: The columns that tasks copy.

    Raises:
        ConfigurationError: ``TABLE_TYPES_DIFFER``, ``TABLE_REFUSES_REPEATS``.
    """
    quoted = table_identifier(table).as_string(connection)
    wanted = {column.name: column.postgres_type for column in columns}
    types = connection.execute(_SQL["column_types"], {"table": quoted}).fetchall()
    differing = [
        f"{name} is {kind}, not {wanted[name]}"
        for name, kind in types
        if wanted.get(name, kind) != kind
    ]
    if differing:
        raise ConfigurationError(
            "TABLE_TYPES_DIFFER",
            saw=f"In table {table}, {'; '.join(differing)}.",
            why="With at_least_once, tasks copy rows directly into the table, and "
            "COPY does not convert types.",
            fix="Give the table these types, or write guarantee: exactly_once.",
        )
    keys = connection.execute(
        _SQL["keys_over"], {"table": quoted, "columns": sorted(wanted), "apart": None}
    ).fetchall()
    if keys:
        raise ConfigurationError(
            "TABLE_REFUSES_REPEATS",
            saw=f"Table {table} has the unique key "
            f"{', '.join(key for (key,) in keys)}.",
            why="With at_least_once, a batch that runs again repeats its rows, and "
            "the key would turn them into dead letters.",
            fix="Drop the key, or write guarantee: exactly_once.",
        )
