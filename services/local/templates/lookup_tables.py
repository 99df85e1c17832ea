"""Makes the lookup tables of a template."""

from __future__ import annotations

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from tallyweir.services.local.datasets.flights import read_file
from tallyweir.services.local.templates.template import Template
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.sqlstate import translate

_COPY = "COPY {} FROM STDIN (FORMAT csv, HEADER, NULL 'NA')"


def make_tables(dsn: str, template: Template) -> None:
    """Run a template's SQL, and fill its tables; existing rows stay unchanged.

    The rows are CSV below a header, with the table's columns in order and ``NA`` for
    null.

    Raises:
        TallyweirError: Postgres cannot be reached, or refuses.

    Crash:
        All of it is one transaction: the tables exist with their rows, or not at all.
    """
    if template.tables is None:
        return
    try:
        with connect(dsn, application_name="tallyweir templates") as connection:
            connection.execute(template.tables.read_bytes())
            for table, file in template.rows.items():
                _fill(connection, sql.Identifier(table), read_file(file))
    except psycopg.Error as error:
        raise translate(error, doing=f"running {template.tables.name}") from error


def _fill(
    connection: psycopg.Connection[TupleRow], table: sql.Identifier, content: bytes
) -> None:
    if connection.execute(sql.SQL("SELECT FROM {} LIMIT 1").format(table)).rowcount:
        return
    with connection.cursor().copy(sql.SQL(_COPY).format(table)) as copy:
        copy.write(content)
