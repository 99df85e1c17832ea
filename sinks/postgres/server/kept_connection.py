"""A connection that is kept for the next task or batch."""

from __future__ import annotations

from typing import TypeAlias

import psycopg
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.naming import application_name
from tallyweir.sinks.protocol.identity import Epoch

PostgresConnection: TypeAlias = psycopg.Connection[TupleRow]


class KeptConnection:
    """One connection of a process, kept over tasks and batches.

    Opening one costs more than staging a small batch.
    """

    def __init__(self) -> None:
        self._kept: PostgresConnection | None = None
        self._opened_for: tuple[str, int, int] | None = None

    def get(
        self, dsn: str, *, pipeline_number: int, epoch: Epoch
    ) -> PostgresConnection:
        """Return a usable connection; open one if the kept one is broken or unfit."""
        wanted = (dsn, pipeline_number, int(epoch))
        if self._kept is not None and (
            self._kept.closed or self._kept.broken or self._opened_for != wanted
        ):
            self.close()
        if self._kept is None:
            self._kept = connect(
                dsn, application_name=application_name(pipeline_number, epoch)
            )
            self._opened_for = wanted
        else:
            self._kept.rollback()
        return self._kept

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None
