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
from sinks.postgres.sketch_join import SketchJoin
from sinks.postgres.statements import load_statements
from sinks.postgres.window_table import LatePolicy, WindowTable

_SQL = load_statements("sinks.postgres", "window_merge.sql")
_COMMA = sql.SQL(", ")


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
        self._staging = staging
        self._tables = {
            "target": table_identifier(output.table),
            "staging": staging,
            "state": state,
            "touches": _touches(output),
        }

    def count_staged(self) -> int:
        """Count the staged rows of the attempts that voted."""
        row = self._execute("staged_rows").fetchone()
        assert row is not None
        return int(row[0])

    def run(self, *, is_revised: bool) -> None:
        """Merge the staged partials and bring the result rows up to date.

        Args:
            is_revised: Whether a window that the watermark has passed gets events.
        """
        # A session that is not revised itself may join one that was settled.
        may_revise = is_revised or self._output.has_sessions
        if may_revise and self._output.late is LatePolicy.REVISE:
            self._keep_former_rows()
        if self._output.has_sessions:
            self._execute("take_rows")
        if self._output.has_sessions or self._output.sketched:
            columns = names(self._output.staging_columns)
            self._execute("take_state", staged_columns=columns)
        if self._output.has_sessions:
            self._execute("join_sessions", group=_group(self._output))
        if self._output.sketched:
            self._join_sketches()
        self._merge()

    def settle(self) -> None:
        """Mark the windows that the watermark has passed; forget the final ones."""
        self._execute("settle_windows")
        self._execute("forget_settled_state")

    def _keep_former_rows(self) -> None:
        """Copy the settled rows that this batch changes to the revisions table."""
        columns = self._output.result_columns
        self._execute(
            "keep_former_rows",
            revisions=table_identifier(revisions_table(self._output.table)),
            columns=names(columns),
            former_columns=_COMMA.join(
                sql.Identifier("former", column.name) for column in columns
            ),
        )

    def _join_sketches(self) -> None:
        SketchJoin(
            self._connection, self._output, self._staging, self._values["attempts"]
        ).run()

    def _merge(self) -> None:
        output = self._output
        aggregates = [aggregate.column for aggregate in output.aggregates]
        self._execute(
            "merge_windows",
            keys=names(output.keys),
            partials=names(partial.column for partial in output.partials),
            combined=_COMMA.join(partial.combined for partial in output.partials),
            merged=_COMMA.join(partial.merged for partial in output.partials),
            aggregates=names(aggregates),
            finals=_COMMA.join(aggregate.final for aggregate in output.aggregates),
            updates=_COMMA.join(
                sql.SQL("{n} = EXCLUDED.{n}").format(n=sql.Identifier(name))
                for name in (*(column.name for column in aggregates), "pane", "final")
            ),
        )

    def _execute(
        self, statement: str, **identifiers: sql.Composable
    ) -> psycopg.Cursor[TupleRow]:
        composed = _SQL[statement].format(**self._tables, **identifiers)
        return self._connection.execute(composed, self._values)


def _touches(output: WindowTable) -> sql.Composable:
    """Tell whether a stored window, or its row, is of those that are staged."""
    same_time = (
        "staged.window_start < former.window_end "
        "AND former.window_start < staged.window_end"
        if output.has_sessions
        else "staged.window_start = former.window_start"
    )
    return sql.SQL("{} = {} AND {}").format(
        _group(output, "former"), _group(output, "staged"), sql.SQL(same_time)
    )


def _group(output: WindowTable, *table: str) -> sql.Composable:
    """Compare groups as one value; the constant is for groups of no column."""
    members = [sql.Identifier(*table, column.name) for column in output.by]
    return sql.SQL("(ROW({})::record)").format(_COMMA.join([sql.SQL("0"), *members]))
