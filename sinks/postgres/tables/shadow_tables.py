"""Where a pipeline writes: to the tables of its file, or to their shadows."""

from __future__ import annotations

from collections.abc import Mapping

from psycopg import Connection
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.sqlstate import translated
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.errors import RetryableError

_SQL = load_statements("tallyweir.sinks.postgres.tables", "shadow.sql")


def read_shadow_tables(
    connection: Connection[TupleRow], pipeline: str
) -> dict[str, str]:
    """Return the shadow of each table that has one, in the caller's transaction."""
    rows = connection.execute(_SQL["shadow_tables"], {"pipeline": pipeline}).fetchall()
    return dict(rows)


def find_shadow_tables(dsn: str, pipeline: str) -> dict[str, str]:
    """Return the same as ``read_shadow_tables``, over a connection of its own.

    Raises:
        RetryableError: The server is unreachable.
    """
    with (
        translated("looking for shadow tables"),
        connect(dsn, application_name="tallyweir shadow tables") as connection,
    ):
        found = connection.execute(_SQL["has_shadow_tables"]).fetchone()
        # A home that was never migrated lacks the ledger's table of them.
        return read_shadow_tables(connection, pipeline) if found == (True,) else {}


def check_tables_kept(
    connection: Connection[TupleRow], pipeline: str, known: Mapping[str, str]
) -> None:
    """Refuse to work with tables that have changed places since they were looked up.

    Raises:
        RetryableError: ``TABLES_SWITCHED``.
    """
    now = read_shadow_tables(connection, pipeline)
    if now != known:
        raise RetryableError(
            "TABLES_SWITCHED",
            saw=f"The tables of pipeline {pipeline} have changed places with those of "
            "another since this process began.",
            why="This process would write into the other pipeline's tables.",
            fix="Nothing to do: the next start finds the right tables.",
        )
