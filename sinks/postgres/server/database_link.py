"""One connection that is opened when needed, and opened again after a failure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import psycopg
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.server.connection import connect, standbys_waited_for
from tallyweir.sinks.postgres.server.sqlstate import translated

_T = TypeVar("_T")


class DatabaseLink:
    """Runs one transaction at a time; only one thread may use it at a time.

    Args:
        dsn: libpq connection string.
        application_name: Name in ``pg_stat_activity``.
    """

    def __init__(self, dsn: str, *, application_name: str) -> None:
        self._dsn = dsn
        self.application_name = application_name
        self._connection: psycopg.Connection[TupleRow] | None = None

    def run(self, doing: str, work: Callable[[psycopg.Connection[TupleRow]], _T]) -> _T:
        """Run one transaction; a failure closes the connection and is translated.

        Raises:
            TallyweirError: As ``translate`` finds.
        """
        with translated(doing):
            connection = self.connected()
            try:
                result = work(connection)
                with standbys_waited_for(connection):
                    connection.commit()
            except BaseException:
                self.close()
                raise
            return result

    def connected(self) -> psycopg.Connection[TupleRow]:
        """Return the open connection; open one if there is none or it broke.

        Raises:
            TallyweirError: As ``connect`` does.
        """
        if self._connection is None or self._connection.closed:
            self._connection = connect(
                self._dsn, application_name=self.application_name
            )
        return self._connection

    def close(self) -> None:
        """Close the connection; the next use opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
