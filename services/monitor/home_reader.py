"""Reads of the home database, a few at a time however many people look."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from psycopg import Connection
from psycopg.rows import TupleRow

from sinks.postgres.connection import connect
from sinks.protocol.errors import RetryableError

_T = TypeVar("_T")

_CONNECTIONS = 4
#: The page asks again anyway.
_PATIENCE_S = 10.0
#: After a failover the old primary may answer for a while; not for longer than this.
_KEPT_S = 60.0
_NAME = "tallyweir monitor"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    connection: Connection[TupleRow]
    opened_at: float


class HomeReader:
    """Lends connections to the home database.

    A connection is kept for the next read, since a session that knows the catalog
    answers in half the time. Reads change nothing, so one that fails on a kept
    connection, whose server may have gone away meanwhile, is asked again on a new one.

    Args:
        dsn: Of the home database.
    """

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._free = threading.BoundedSemaphore(_CONNECTIONS)
        self._kept: list[_Kept] = []

    def read(self, reading: Callable[[Connection[TupleRow]], _T]) -> _T:
        """Give a connection to what reads, and return what it returns.

        Raises:
            RetryableError: ``MONITOR_BUSY``, or the server cannot be reached.
            TallyweirError: What ``reading`` raises.
        """
        if not self._free.acquire(timeout=_PATIENCE_S):
            raise RetryableError(
                "MONITOR_BUSY",
                saw=f"{_CONNECTIONS} reads have been at work for {_PATIENCE_S:.0f} s.",
                why="The monitor takes no more of the home database's connections.",
                fix="Wait; if it stays so, the home database is slow.",
            )
        try:
            kept = self._take_kept()
            if kept is not None:
                try:
                    return self._read_by(kept, reading)
                except RetryableError:
                    pass
            fresh = connect(self._dsn, application_name=_NAME)
            opened = _Kept(connection=fresh, opened_at=time.monotonic())
            return self._read_by(opened, reading)
        finally:
            self._free.release()

    def close(self) -> None:
        """Close what is kept."""
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
        except BaseException:
            opened.connection.close()
            raise
        self._kept.append(opened)
        return result
