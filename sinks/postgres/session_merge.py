"""Merges a batch's sessions into the stored ones that they overlap."""

from __future__ import annotations

from collections.abc import Iterable

from psycopg import sql

from sinks.postgres.columns import names, table_identifier
from sinks.postgres.naming import revisions_table
from sinks.postgres.statements import load_statements
from sinks.postgres.window_merge import WindowMerge

_SQL = load_statements("sinks.postgres", "session_merge.sql")


class SessionMerge(WindowMerge):
    """The share of one output with session windows in one publish transaction.

    A session takes the place of those that it joins: their rows go, to the revisions
    table if somebody may have taken them for settled.
    """

    def keep_former_values(self) -> None:
        """Copy the settled rows that this batch's sessions swallow."""
        columns = self._output.result_columns
        self._run(
            "keep_former_sessions",
            revisions=table_identifier(revisions_table(self._output.table)),
            columns=names(columns),
            result_columns=_comma(
                sql.Identifier("result", column.name) for column in columns
            ),
        )

    def run(self) -> None:
        """Merge the staged sessions, and put their rows in the place of former ones."""
        output = self._output
        by = [sql.Identifier(column.name) for column in output.by]
        self._run("take_session_rows")
        self._run("take_sessions", staged_columns=names(output.staging_columns))
        self._run(
            "merge_sessions",
            staged_columns=names(output.staging_columns),
            keys=names(output.keys),
            group=_record(by),
            group_columns=sql.SQL("").join(sql.SQL("{}, ").format(name) for name in by),
            partials=names(partial.column for partial in output.partials),
            combined=_comma(partial.combined for partial in output.partials),
            aggregates=names(aggregate.column for aggregate in output.aggregates),
            finals=_comma(aggregate.final for aggregate in output.aggregates),
        )

    def _run(self, statement: str, **identifiers: sql.Composable) -> None:
        def group(table: str) -> sql.Composable:
            return _record(
                sql.Identifier(table, column.name) for column in self._output.by
            )

        composed = _SQL[statement].format(
            target=self._target,
            staging=self._staging,
            state=self._state,
            result_group=group("result"),
            staged_group=group("staged"),
            **identifiers,
        )
        self._connection.execute(composed, self._values)


def _comma(parts: Iterable[sql.Composable]) -> sql.Composable:
    return sql.SQL(", ").join(parts)


def _record(parts: Iterable[sql.Composable]) -> sql.Composable:
    """Compare as one value; the constant is for groups of no column."""
    return sql.SQL("(ROW({})::record)").format(_comma([sql.SQL("0"), *parts]))
