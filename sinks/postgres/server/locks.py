"""Locks of Postgres: the lock of a service that works alone, and brief table locks.

A ``LockedSession`` is for services that work one at a time. The home database elects
one: the session that holds the lock works, the others try to get it and stand by.
Postgres holds the lock for as long as its session lasts, so no clock of ours is
needed::

                  try_lock: False             any error, or close
                  +------+               +------------------------+
                  v      |               v                        |
     connect -> standing by --- try_lock: True ---> at work       |
        ^                                             |           |
        +---- by the service, at its next round ------+-----------+

This is promised:

- At most one session holds a lock. All that is read and written through the session is
  read and written by the holder: when a session loses the lock it is over, so its next
  statement fails, and it never opens another by itself.
- If a holder dies, or sends no statement for ``idle_timeout_s``, it loses the lock: the
  server ends the session. So a paused process does not block others endlessly.

This is not promised; a service must handle it itself:

- To act alone *outside* of the home database. A holder that was paused too long
  finishes its step when it wakes, at the same time as its successor, and only learns
  at its next statement that it has lost the lock. So its messages carry an ID that
  repeats share, or go where the successor has fenced it; and it notes them through the
  session afterwards.
- To find the predecessor's last step noted: it may have been done, and the note lost.

A lock belongs to its server. After a failover no session holds it on the new server. If
the former server lives on unseen, its holder is like one that was paused too long.

``LockAttempts`` does work that locks a table exclusively, and postpones it while
another session uses the table.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import psycopg
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.server.connection import (
    DatabaseLink,
    connect,
    standbys_waited_for,
)
from tallyweir.sinks.postgres.server.sqlstate import translated
from tallyweir.sinks.postgres.server.statements import load_statements

_SQL = load_statements("tallyweir.sinks.postgres.server", "locked_session.sql")

_T = TypeVar("_T")


class LockedSession:
    """One session with the home database, which every error closes for good.

    Only one thread may use it at a time.

    Args:
        dsn: libpq connection string. A pooler in between must keep the session.
        lock: An arbitrary number. It must be the same for every Tallyweir, and another
            for each kind of service.
        application_name: Name in ``pg_stat_activity``.
        idle_timeout_s: After so long without a statement the server ends the session.
            It must be longer than the service ever takes between two statements.

    Raises:
        TallyweirError: As ``connect``.
    """

    def __init__(
        self, dsn: str, *, lock: int, application_name: str, idle_timeout_s: float
    ) -> None:
        self._lock = lock
        self._connection = connect(dsn, application_name=application_name)
        values = {"idle_timeout": f"{int(idle_timeout_s * 1000)}ms"}
        self.run(
            "opening a session",
            lambda connection: connection.execute(_SQL["session_settings"], values),
        )

    def try_lock(self) -> bool:
        """Take the lock, unless another session has it, until this session is closed.

        Raises:
            TallyweirError: The server did not answer.
        """
        values = {"lock": self._lock}
        ((is_locked,),) = self.run(
            "taking the service's lock",
            lambda connection: connection.execute(_SQL["try_lock"], values).fetchall(),
        )
        return bool(is_locked)

    def read_installation(self) -> str:
        """Return the id that tells this home database from all others."""
        ((installation,),) = self.run(
            "reading the installation",
            lambda connection: connection.execute(_SQL["installation"]).fetchall(),
        )
        return str(installation)

    def run(self, doing: str, work: Callable[[psycopg.Connection[TupleRow]], _T]) -> _T:
        """Run one transaction; a failure closes the session and is translated.

        Raises:
            TallyweirError: As ``work`` raises, or as ``translate`` finds. The lock is
                lost now, or was lost before.

        Crash:
            Before the commit nothing has changed. A lost answer looks like a failure,
            so the next holder reads what is true.
        """
        try:
            with translated(doing):
                result = work(self._connection)
                with standbys_waited_for(self._connection):
                    self._connection.commit()
                return result
        except BaseException:
            self.close()
            raise

    @property
    def is_open(self) -> bool:
        """Whether the session is open, as far as this process knows."""
        return not self._connection.closed

    def close(self) -> None:
        """End the session, and with it the lock."""
        self._connection.close()


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
