"""Work that keeps everybody out of a table, and so is done only where nobody is in."""

from __future__ import annotations

import time
from collections.abc import Callable

import psycopg
from psycopg.rows import TupleRow

from sinks.postgres.server.session import Session

#: How long nothing is tried after somebody had it: who reads all of a database does so
#: for minutes or hours, and each try costs all others the wait.
RESPITE_S = 60.0


class LockAttempts:
    """Does what may be put off, and puts it off while others hold what it locks.

    Args:
        session: To the database.
        clock: Seconds, from whatever beginning.
    """

    def __init__(
        self, session: Session, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._session = session
        self._clock = clock
        self._not_before: float | None = None

    def run(
        self, doing: str, work: Callable[[psycopg.Connection[TupleRow]], object]
    ) -> bool:
        """Do one transaction, unless somebody is in its way or was a moment ago.

        Returns:
            Whether it was done.

        Raises:
            TallyweirError: As ``Session.run``, for any other failure.

        Crash:
            It is done whole or not at all.
        """
        if self._not_before is not None and self._clock() < self._not_before:
            return False

        def attempt(connection: psycopg.Connection[TupleRow]) -> bool:
            # Whoever comes meanwhile waits behind who waits, even to read.
            connection.execute("SET LOCAL lock_timeout = '100ms'")
            try:
                work(connection)
            except psycopg.errors.LockNotAvailable:
                # The session is as good as before, and the next batch needs one.
                connection.rollback()
                return False
            return True

        is_done = self._session.run(doing, attempt)
        self._not_before = None if is_done else self._clock() + RESPITE_S
        return is_done
