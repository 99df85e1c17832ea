"""Finds what a table has that its shadow would lack in its place.

Row-level security matters most: a table without it shows each reader every row.
"""

from __future__ import annotations

from psycopg import Connection, sql
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.ledger.audited_pipeline import fetch
from tallyweir.sinks.postgres.server.statements import load_statements

_SQL = load_statements("tallyweir.sinks.postgres.steering", "left_behind.sql")


def left_behind(connection: Connection[TupleRow], table: sql.Identifier) -> list[str]:
    """Name the security, triggers and rules of a table, and foreign keys at either end.

    Postgres does not copy these with a table, and they do not follow its name. The list
    is empty if there is no table. If the caller holds the table in ACCESS EXCLUSIVE
    mode, the answer stays true until the end of the transaction.
    """
    quoted = table.as_string(connection)
    return [
        str(r["what"]) for r in fetch(connection, _SQL["left_behind"], table=quoted)
    ]
