"""Names the person for whom a service acts, for the notes of acts."""

from __future__ import annotations

from psycopg import Connection
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.server.sqlstate import translated
from tallyweir.sinks.postgres.server.statements import load_statements

_SQL = load_statements("tallyweir.sinks.postgres.steering", "act.sql")


def act_as(connection: Connection[TupleRow], name: str) -> None:
    """Note whatever this session does with a name, together with that of its login.

    Args:
        connection: To the home, outside a transaction.
        name: The name of a person whom the caller has identified.

    Raises:
        RetryableError: The server went away.
    """
    with translated("identifying the operator"), connection.transaction():
        connection.execute(_SQL["set_actor"], {"name": name})
