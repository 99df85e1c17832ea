"""For whom a service acts, so that the notes of an act have his name."""

from __future__ import annotations

from psycopg import Connection
from psycopg.rows import TupleRow

from sinks.postgres.server.sqlstate import translated
from sinks.postgres.server.statements import load_statements

_SQL = load_statements("sinks.postgres.steering", "act.sql")


def act_as(connection: Connection[TupleRow], name: str) -> None:
    """Have whatever this session does noted with a name, beside that of its login.

    Args:
        connection: To the home, not inside of a transaction.
        name: Of a person whom the caller has made out.

    Raises:
        RetryableError: The server went away.
    """
    with translated("telling who acts"), connection.transaction():
        connection.execute(_SQL["set_actor"], {"name": name})
