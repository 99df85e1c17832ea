"""Merges a batch's window partials into the windows that are open.

The state table holds the merged partials of every window that can still change, the
result table what readers see of them. Both change in the publish transaction only.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from sinks.postgres.columns import names, table_identifier
from sinks.postgres.naming import revisions_table
from sinks.postgres.statements import load_statements
from sinks.postgres.window_table import WindowTable

_SQL = load_statements("sinks.postgres", "window_merge.sql")


class WindowMerge:
    """The share of one window output in one publish transaction.

    Args:
        connection: In the publish transaction; the caller ends it.
        output: The window output.
        values: The parameters of the publish transaction: sequence, attempts, and
            the watermark before and after the batch.
        staging: The output's staging table.
        state: The output's state table.
    """

    def __init__(
        self,
        connection: psycopg.Connection[TupleRow],
        output: WindowTable,
        values: Mapping[str, object],
        *,
        staging: sql.Identifier,
        state: sql.Identifier,
    ) -> None:
        self._connection = connection
        self._output = output
        self._values = {
            **values,
            "allowed_lateness": timedelta(microseconds=output.allowed_lateness_us),
        }
        self._target = table_identifier(output.table)
        self._staging = staging
        self._state = state

    def count_staged(self) -> int:
        """Count the staged rows of the attempts that voted."""
        row = self._execute("staged_rows", staging=self._staging).fetchone()
        assert row is not None
        return int(row[0])

    def keep_former_values(self) -> None:
        """Copy the settled rows that this batch changes to the revisions table."""
        columns = self._output.result_columns
        self._execute(
            "keep_former_values",
            revisions=table_identifier(revisions_table(self._output.table)),
            target=self._target,
            staging=self._staging,
            columns=names(columns),
            result_columns=sql.SQL(", ").join(
                sql.Identifier("result", column.name) for column in columns
            ),
            same_key=sql.SQL(" AND ").join(
                sql.SQL("result.{n} IS NOT DISTINCT FROM staged.{n}").format(
                    n=sql.Identifier(column.name)
                )
                for column in self._output.keys
            ),
        )

    def run(self) -> None:
        """Merge the staged partials and bring the result rows up to date."""
        output = self._output
        partials = output.partials
        aggregates = [aggregate.column for aggregate in output.aggregates]
        comma = sql.SQL(", ")
        self._execute(
            "merge_window",
            state=self._state,
            target=self._target,
            staging=self._staging,
            keys=names(output.keys),
            partials=names(partial.column for partial in partials),
            combined=comma.join(partial.combined for partial in partials),
            merged=comma.join(partial.merged for partial in partials),
            aggregates=names(aggregates),
            finals=comma.join(aggregate.final for aggregate in output.aggregates),
            updates=comma.join(
                sql.SQL("{n} = EXCLUDED.{n}").format(n=sql.Identifier(name))
                for name in (*(column.name for column in aggregates), "pane", "final")
            ),
        )

    def settle(self) -> None:
        """Mark the windows that the watermark has passed; forget the final ones."""
        self._execute("settle_windows", target=self._target)
        self._execute("forget_settled_state", state=self._state)

    def _execute(
        self, statement: str, **identifiers: sql.Composable
    ) -> psycopg.Cursor[TupleRow]:
        composed = _SQL[statement].format(**identifiers)
        return self._connection.execute(composed, self._values)
