"""Reads the home database, a few reads at a time for any number of viewers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from fastapi import Response
from psycopg import Connection
from psycopg.errors import QueryCanceled
from psycopg.rows import TupleRow
from pydantic_core import to_json

from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.protocol.errors import RetryableError

_T = TypeVar("_T")

_CONNECTIONS = 4
#: A longer statement would block one of the few connections for all other viewers.
STATEMENT_MAX_S = 20.0
#: The page asks again anyway.
_PATIENCE_S = 10.0
#: Longest use of a connection: after a failover the old primary may still answer on it.
_KEPT_S = 60.0
_NAME = "tallyweir monitor"
_TOO_SLOW = "MONITOR_READ_SLOW"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    connection: Connection[TupleRow]
    opened_at: float


class HomeReader:
    """Lends connections to the home database.

    It keeps a connection for the next read, because a used one has the system tables in
    its cache, and answers in half the time. The server of a kept connection may have
    gone away meanwhile. Reads change nothing, so a read that fails on a kept connection
    runs again on a new one.

    Args:
        dsn: Connection string of the home database.
        statement_max_s: Most seconds that the server may take for a statement.
    """

    def __init__(self, dsn: str, *, statement_max_s: float = STATEMENT_MAX_S) -> None:
        self._dsn = dsn
        self._statement_max_s = statement_max_s
        self._free = threading.BoundedSemaphore(_CONNECTIONS)
        self._kept: list[_Kept] = []

    def read(self, reading: Callable[[Connection[TupleRow]], _T]) -> _T:
        """Call ``reading`` with a connection, and return its result.

        Raises:
            RetryableError: ``MONITOR_BUSY``, ``MONITOR_READ_SLOW``, or the server
                cannot be reached.
            TallyweirError: Any error of ``reading``.
        """
        if not self._free.acquire(timeout=_PATIENCE_S):
            raise RetryableError(
                "MONITOR_BUSY",
                saw=f"{_CONNECTIONS} reads have been running for {_PATIENCE_S:.0f} s.",
                why="The monitor opens no more connections to the home database.",
                fix="Wait; if this lasts, the home database is slow.",
            )
        try:
            kept = self._take_kept()
            if kept is not None:
                try:
                    return self._read_by(kept, reading)
                except RetryableError as error:
                    # A second try would take as long.
                    if error.code == _TOO_SLOW:
                        raise
            fresh = connect(
                self._dsn,
                application_name=_NAME,
                statement_max_s=self._statement_max_s,
            )
            opened = _Kept(connection=fresh, opened_at=time.monotonic())
            return self._read_by(opened, reading)
        finally:
            self._free.release()

    def answer(self, reading: Callable[[Connection[TupleRow]], object]) -> Response:
        """Answer a request with the result of a read.

        Raises:
            TallyweirError: As ``read``.
        """
        return json_answer(self.read(reading))

    def close(self) -> None:
        """Close the kept connections."""
        while self._kept:
            self._kept.pop().connection.close()

    def _take_kept(self) -> _Kept | None:
        while True:
            try:
                kept = self._kept.pop()
            except IndexError:
                return None
            if time.monotonic() - kept.opened_at < _KEPT_S:
                return kept
            kept.connection.close()

    def _read_by(
        self, opened: _Kept, reading: Callable[[Connection[TupleRow]], _T]
    ) -> _T:
        try:
            result = reading(opened.connection)
        except BaseException as error:
            opened.connection.close()
            if isinstance(error.__cause__, QueryCanceled):
                raise self._too_slow() from error
            raise
        self._kept.append(opened)
        return result

    def _too_slow(self) -> RetryableError:
        return RetryableError(
            _TOO_SLOW,
            saw=f"A read took the home database more than {self._statement_max_s:g} "
            "s, or was cancelled there.",
            why="All viewers share the monitor's few connections.",
            fix="Wait if the home database is slow or another session holds a lock; "
            "otherwise run the command, which waits as long as needed.",
        )


def json_answer(found: object) -> Response:
    """Answer a request with JSON; dataclasses become objects."""
    return Response(to_json(found), media_type="application/json")
