"""The part of the publish transaction that changes keyed state and timers."""

from __future__ import annotations

from psycopg import sql

from tallyweir.sinks.postgres.outputs.voted_rows import VotedRows
from tallyweir.sinks.postgres.server.statements import load_statements

_SQL = load_statements("tallyweir.sinks.postgres.publish", "keyed.sql")


class KeyedMoves:
    """Changes state and timers as the voted attempts of phase 2b staged it.

    Args:
        voted: The rows that the batch's voters staged for the publish transaction.
    """

    def __init__(self, voted: VotedRows) -> None:
        self._voted = voted

    def run(self) -> None:
        """Delete state that has expired, then make the changes.

        Raises:
            RetryableError: ``STAGED_ROWS_MISSING``.
            psycopg.Error: Anything that the server or the connection raised.
        """
        self._execute(_SQL["drop_expired"])
        # A name that is cleared may get new entries in the same batch.
        self._change("keyed_state", "clear_names", "delete_entries", "put_entries")
        self._change("keyed_timer", "drop_timers", "put_timers")

    def _change(self, staged: str, *statements: str) -> None:
        rows = self._voted.count(staged)
        self._voted.check_moved(staged, rows)
        if not rows:
            return
        staging = self._voted.tables.staging(staged)
        for statement in statements:
            self._execute(_SQL[statement].format(staging=staging))

    def _execute(self, statement: sql.SQL | sql.Composed) -> None:
        self._voted.connection.execute(statement, self._voted.values)
