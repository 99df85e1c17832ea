"""Makes the tables that a template looks things up in."""

from __future__ import annotations

from pathlib import Path

import psycopg

from sinks.postgres.sqlstate import translate


def make_tables(dsn: str, file: Path) -> None:
    """Run a template's SQL, which changes nothing where its tables are there.

    Raises:
        TallyweirError: Postgres is away, or refuses.

    Crash:
        One transaction: the tables are there with their rows, or not at all.
    """
    try:
        with psycopg.connect(dsn) as connection:
            connection.execute(file.read_bytes())
    except psycopg.Error as error:
        raise translate(error, doing=f"running {file.name}") from error
