"""Everything that a database holds, for tests of what must not change or be there."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

_TABLES = (
    "SELECT relnamespace::regnamespace::text, relname FROM pg_class "
    "WHERE relkind = 'r' AND relpersistence = 'p' AND relnamespace NOT IN "
    "('pg_catalog'::regnamespace, 'information_schema'::regnamespace) "
    "AND oid IS DISTINCT FROM to_regclass('tallyweir.pipeline_gauge') ORDER BY 1, 2"
)


def read_database(dsn: str) -> dict[str, list[str]]:
    """Return the rows of every table as text, sorted.

    But for what a monitor gauges, which it notes whenever it is time for it.
    """
    with psycopg.connect(dsn) as connection:
        tables: list[tuple[Any, ...]] = connection.execute(_TABLES).fetchall()
        return {
            f"{schema}.{table}": sorted(
                row[0]
                for row in connection.execute(
                    sql.SQL("SELECT t::text FROM {} AS t").format(
                        sql.Identifier(schema, table)
                    )
                )
            )
            for schema, table in tables
        }


def places_of(dsn: str, text: str) -> set[str]:
    """Name the tables that have a text anywhere, as it is or as bytes."""
    spellings = (text, text.encode().hex())
    return {
        table
        for table, rows in read_database(dsn).items()
        if any(spelling in row for row in rows for spelling in spellings)
    }
