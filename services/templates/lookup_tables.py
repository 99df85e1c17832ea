"""Makes the tables that a template looks things up in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from sinks.postgres.sqlstate import translate

_COPY = "COPY {} FROM STDIN (FORMAT csv, HEADER, NULL 'NA')"


def make_tables(dsn: str, file: Path, rows: Mapping[str, bytes]) -> None:
    """Run a template's SQL, and fill its tables; neither touches rows that are there.

    Args:
        dsn: Of the home database.
        file: SQL that makes what is missing.
        rows: For tables that are empty, by their names: CSV below a header, with the
            table's columns in its order and ``NA`` for null.

    Raises:
        TallyweirError: Postgres is away, or refuses.

    Crash:
        One transaction: the tables are there with their rows, or not at all.
    """
    try:
        with psycopg.connect(dsn) as connection:
            connection.execute(file.read_bytes())
            for table, content in rows.items():
                _fill(connection, sql.Identifier(table), content)
    except psycopg.Error as error:
        raise translate(error, doing=f"running {file.name}") from error


def _fill(
    connection: psycopg.Connection[TupleRow], table: sql.Identifier, content: bytes
) -> None:
    if connection.execute(sql.SQL("SELECT FROM {} LIMIT 1").format(table)).rowcount:
        return
    with connection.cursor().copy(sql.SQL(_COPY).format(table)) as copy:
        copy.write(content)
