"""The publish transaction's share in keyed state: results, changes of state, timers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from sinks.postgres.outputs.keyed_table import KeyedTable
from sinks.postgres.server.columns import names, table_identifier
from sinks.postgres.server.statements import load_statements
from sinks.postgres.tables.row_digest import RowDigest, change_digested, stored

_SQL = load_statements("sinks.postgres.publish", "keyed.sql")

_Connection = psycopg.Connection[TupleRow]


def move_results(
    connection: _Connection,
    output: KeyedTable,
    staging: sql.Identifier,
    values: Mapping[str, object],
) -> RowDigest:
    """Insert the voted result rows of an output; return what they are."""
    columns = output.rows_staging_columns
    statement = _SQL["move_results"].format(
        target=table_identifier(output.table),
        staging=staging,
        columns=names(columns),
        sources=sql.SQL(", ").join(column.from_staging for column in columns),
    )
    return change_digested(connection, statement, stored(output.result_columns), values)


class KeyedMoves:
    """Changes state and timers to what the voted attempts of phase 2b say.

    Args:
        connection: In the publish transaction; the caller ends it.
        staging: Names a staging table.
        values: The transaction's parameters.
        check_moved: Holds rows that were found against those that were voted for.
    """

    def __init__(
        self,
        connection: _Connection,
        staging: Callable[[str], sql.Identifier],
        values: Mapping[str, object],
        check_moved: Callable[[str, int], None],
    ) -> None:
        self._connection = connection
        self._staging = staging
        self._values = values
        self._check_moved = check_moved

    def run(self) -> None:
        """Forget what has expired, then make the changes.

        Raises:
            RetryableError: ``STAGED_ROWS_MISSING``.
            psycopg.Error: Anything that the server or the connection raised.
        """
        self._connection.execute(_SQL["drop_expired"], self._values)
        # A name that is cleared may get new entries in the same batch.
        self._change("keyed_state", "clear_names", "delete_entries", "put_entries")
        self._change("keyed_timer", "drop_timers", "put_timers")

    def _change(self, staged: str, *statements: str) -> None:
        staging = self._staging(staged)
        row = self._connection.execute(
            _SQL["count_staged"].format(staging=staging), self._values
        ).fetchone()
        assert row is not None
        self._check_moved(staged, row[0])
        if not row[0]:
            return
        for statement in statements:
            self._connection.execute(
                _SQL[statement].format(staging=staging), self._values
            )
