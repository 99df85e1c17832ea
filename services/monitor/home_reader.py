"""Reads of the home database, a few at a time however many people look."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from psycopg import Connection
from psycopg.rows import TupleRow

from sinks.postgres.connection import connect
from sinks.protocol.errors import RetryableError

_T = TypeVar("_T")

_CONNECTIONS = 4
#: The page asks again anyway.
_PATIENCE_S = 10.0
_NAME = "tallyweir monitor"


class HomeReader:
    """Lends connections to the home database.

    A read has a connection of its own for as long as it takes: one that is kept would
    have to be watched for servers that went away.

    Args:
        dsn: Of the home database.
    """

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._free = threading.BoundedSemaphore(_CONNECTIONS)

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
            with connect(self._dsn, application_name=_NAME) as connection:
                return reading(connection)
        finally:
            self._free.release()
