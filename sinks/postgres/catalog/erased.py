"""Reads what was erased of a pipeline, for its tasks to leave out."""

from __future__ import annotations

from psycopg import Connection
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.server.sqlstate import translated
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.seen_ids.tombstones import Tombstones

_SQL = load_statements("tallyweir.sinks.postgres.catalog", "erased.sql")


def read_tombstones(connection: Connection[TupleRow], pipeline: str) -> Tombstones:
    """Return all tombstones of a pipeline.

    A process that works under a claim sees all of them: an erasure is an act, so it
    either was committed before the claim, or claims itself and fences the process.

    Args:
        connection: To the home, outside of a transaction.
        pipeline: Its name.

    Raises:
        RetryableError: The server went away.
    """
    values = {"pipeline": pipeline}
    with translated("reading erased events"):
        row = connection.execute(_SQL["erased_ids"], values).fetchone()
        assert row is not None
        positions = connection.execute(_SQL["erased_positions"], values).fetchall()
        connection.rollback()
    return Tombstones(bytes(row[0]), positions)
