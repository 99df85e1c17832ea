"""Work that locks a table exclusively, done only while no other session uses it."""

from __future__ import annotations

import time
from collections.abc import Callable

import psycopg
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.server.database_link import DatabaseLink

#: Pause after a failed attempt: a session that reads a whole database does so for
#: minutes or hours, and each attempt makes all other sessions wait.
RESPITE_S = 60.0


class LockAttempts:
    """Does work that may be postponed, and postpones it while others hold the lock.

    Args:
        link: The link to the database.
        clock: Returns seconds since any fixed start.
    """

    def __init__(
        self, link: DatabaseLink, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._link = link
        self._clock = clock
        self._not_before: float | None = None

    def run(
        self, doing: str, work: Callable[[psycopg.Connection[TupleRow]], object]
    ) -> bool:
        """Run one transaction, unless a lock is in its way or recently was.

        Returns:
            Whether it was done.

        Raises:
            TallyweirError: As ``DatabaseLink.run``, for any other failure.

        Crash:
            The work is done entirely or not at all.
        """
        if self._not_before is not None and self._clock() < self._not_before:
            return False

        def attempt(connection: psycopg.Connection[TupleRow]) -> bool:
            # Sessions that come meanwhile queue behind this one, even to read.
            connection.execute("SET LOCAL lock_timeout = '100ms'")
            try:
                work(connection)
            except psycopg.errors.LockNotAvailable:
                # The session is still usable, and the next batch needs it.
                connection.rollback()
                return False
            return True

        is_done = self._link.run(doing, attempt)
        self._not_before = None if is_done else self._clock() + RESPITE_S
        return is_done
