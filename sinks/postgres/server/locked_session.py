"""A session that holds a lock of the home: for services that work one at a time.

The home database elects: whoever holds the lock works, the others try for it and stand
by. A lock is the server's, lasts as long as its session, and needs no clock of ours::

                try_lock: False             any error, or close
                  +------+               +------------------------+
                  v      |               v                        |
     connect -> standing by --- try_lock: True ---> at work       |
        ^                                             |           |
        +---- by the service, at its next round ------+-----------+

What is promised:

- At most one session holds a lock. Everything that is read and written through the
  session is read and written by the holder: a session that has lost the lock is over,
  so its next statement fails, and it never opens another by itself.
- A holder that dies, or does not ask for anything for ``idle_timeout_s``, loses the
  lock: the server ends the session. So a paused process keeps nobody waiting for ever.

What is not promised, and what a service must bring itself:

- To act alone *outside* of the home database. A holder that was paused for so long
  finishes its step when it wakes, beside its successor, and learns at its next
  statement that it is none any more. So what it sends has an ID that repeats share, or
  goes where a successor has fenced it, and is noted through the session afterwards.
- To find the predecessor's last step noted: it may have been done, and the note lost.

A lock is its server's own. After a failover nobody holds it at the new server; who held
it at the former one, should that live on unseen, is one that was paused for too long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import psycopg
from psycopg.rows import TupleRow

from sinks.postgres.server.connection import connect, standbys_waited_for
from sinks.postgres.server.sqlstate import translated
from sinks.postgres.server.statements import load_statements

_SQL = load_statements("sinks.postgres.server", "locked_session.sql")

_T = TypeVar("_T")


class LockedSession:
    """One session with the home database, which every error closes for good.

    Not for use by several threads at once.

    Args:
        dsn: libpq connection string. A pooler between must keep the session.
        lock: Any number will do; it must only be the same for every Tallyweir, and
            another one for each kind of service.
        application_name: What ``pg_stat_activity`` shows.
        idle_timeout_s: After so long without a statement the server ends the session.
            Longer than anything that the service does between two.

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
            "beginning a session",
            lambda connection: connection.execute(_SQL["session_settings"], values),
        )

    def try_lock(self) -> bool:
        """Take the lock, unless another session has it; held until this one is closed.

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
        """Return what tells this home database from every other one."""
        ((installation,),) = self.run(
            "reading the installation",
            lambda connection: connection.execute(_SQL["installation"]).fetchall(),
        )
        return str(installation)

    def run(self, doing: str, work: Callable[[psycopg.Connection[TupleRow]], _T]) -> _T:
        """Do one transaction; a failure closes the session and is translated.

        Raises:
            TallyweirError: What ``work`` raises, or as ``translate`` finds. The lock is
                lost, or was before.

        Crash:
            Before the commit nothing has changed. Its lost answer looks like a failure,
            so whoever comes next reads what is true.
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
        """Whether the session still stands, as far as is known here."""
        return not self._connection.closed

    def close(self) -> None:
        """End the session, and with it the lock."""
        self._connection.close()
