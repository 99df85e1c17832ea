"""What a table has that its shadow would not have in its place.

Row-level security is the gravest: a table without it shows each reader every row.
"""

from __future__ import annotations

from psycopg import Connection, sql
from psycopg.rows import TupleRow

from sinks.postgres.ledger.audited_pipeline import fetch
from sinks.postgres.server.statements import load_statements

_SQL = load_statements("sinks.postgres.steering", "left_behind.sql")


def left_behind(connection: Connection[TupleRow], table: sql.Identifier) -> list[str]:
    """Name the security, triggers and rules of a table, and foreign keys at either end.

    None of them is copied with a table or follows its name. Of one that is not there
    it names nothing. Whoever holds the table in ACCESS EXCLUSIVE mode keeps the answer
    true until the end of the transaction.
    """
    quoted = table.as_string(connection)
    return [
        str(r["what"]) for r in fetch(connection, _SQL["left_behind"], table=quoted)
    ]
