"""A session that the server ends ahead of one of its statements."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg
from psycopg.rows import TupleRow

from integration_tests.harness.whole_database import read_database
from tallyweir.sinks.protocol.errors import RetryableError


def killing_cursor(dsn: str, statements: int) -> type[psycopg.Cursor[TupleRow]]:
    """Make cursors of a session that ends after so many statements."""
    left = statements

    class Killing(psycopg.Cursor[TupleRow]):
        def execute(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
            nonlocal left
            if left == 0:
                with psycopg.connect(dsn, autocommit=True) as killer:
                    killer.execute(
                        "SELECT pg_terminate_backend(%s, 5000)",
                        (self.connection.info.backend_pid,),
                    )
            left -= 1
            return super().execute(*arguments, **options)

    return Killing


def kill_at_each_statement(
    dsn: str,
    act: Callable[[psycopg.Connection[TupleRow]], object],
    *,
    options: str = "",
    every: int = 1,
) -> int:
    """Do an act in sessions that are killed ahead of one statement after the other.

    Each that is killed, also ahead of the COMMIT, must leave the database as it was.

    Args:
        dsn: The home.
        act: The act.
        options: Of the sessions.
        every: Try one statement in so many.

    Returns:
        Of how many statements the act is, by the first session that lives to its end.
    """
    before = read_database(dsn)
    for statements in range(0, 1000, every):
        killing = killing_cursor(dsn, statements)
        with closing(
            psycopg.connect(dsn, cursor_factory=killing, options=options)
        ) as home:
            try:
                act(home)
            except RetryableError:
                assert before == read_database(dsn)
            else:
                return statements
    raise AssertionError("it has no end")
