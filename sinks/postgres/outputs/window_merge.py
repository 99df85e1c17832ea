"""Merges a batch's partials into open windows; closes those the watermark has passed.

The state table holds the merged partials of every window that can still change. The
result table holds the rows that readers see. Both change only in the publish
transaction. SQL merges all partials but sketches, which are read and joined here.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.outputs.keyed_table import SEQUENCE
from tallyweir.sinks.postgres.outputs.sketches import sketch_of
from tallyweir.sinks.postgres.outputs.window_aggregates import WindowAggregate
from tallyweir.sinks.postgres.outputs.window_columns import WindowColumns
from tallyweir.sinks.postgres.server.columns import names, table_identifier, type_name
from tallyweir.sinks.postgres.server.naming import revisions_table
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.postgres.tables.row_digest import (
    RowDigest,
    change_digested,
    row_hash,
    stored,
)
from tallyweir.sinks.postgres.tables.table_checks import may_skip_rows, skips_rows

_SQL = load_statements("tallyweir.sinks.postgres.outputs", "window_merge.sql")
_COMMA = sql.SQL(", ")
#: The condition for the rows of a stored table that a batch may change.
_CAN_CHANGE = {"target": sql.SQL("NOT final"), "state": sql.SQL("true")}
#: Windows whose sketches are in memory at a time; a sketch has a few kilobytes.
_WINDOWS_AT_ONCE = 500


class WindowMerge:
    """One window output's share of one publish transaction.

    Args:
        connection: In the publish transaction; the caller ends it.
        output: The window output.
        values: The parameters of the publish transaction, as ``VotedRows`` has them.
        staging: The output's staging table.
        state: The output's state table.

    Attributes:
        settled: Digest of the rows that do not change any more: panes that were shown,
            or otherwise windows that were closed, as their state has them.
        revisions: Digest of the former rows that were kept.
    """

    def __init__(
        self,
        connection: psycopg.Connection[TupleRow],
        output: WindowColumns,
        values: Mapping[str, object],
        *,
        staging: sql.Identifier,
        state: sql.Identifier,
    ) -> None:
        self.settled = RowDigest()
        self.revisions = RowDigest()
        self._connection = connection
        self._output = output
        early_us = output.early_us
        self._values = {
            **values,
            "early": None if early_us is None else timedelta(microseconds=early_us),
            "allowed_lateness": timedelta(microseconds=output.allowed_lateness_us),
        }
        self._staging = staging
        self._tables = {
            "target": table_identifier(output.table),
            "staging": staging,
            "state": state,
        }
        # Without columns, a constant puts all windows into one group.
        self._by = names(output.by) if output.by else sql.SQL("0")
        self._state_columns = {
            "keys": names(output.keys),
            "partials": names(partial.column for partial in output.partials),
        }

    def run(self, *, is_revised: bool) -> None:
        """Merge the staged partials, and update the rows that need not wait.

        Args:
            is_revised: Whether a window that the watermark has passed gets events.
        """
        # A session that is not revised itself may join one that was settled.
        may_revise = is_revised or self._output.has_sessions
        if may_revise and self._output.keeps_revisions:
            self._keep_former_rows()
        if self._output.has_sessions:
            self._execute("take_rows", touched=self._touched("target"))
        if self._output.has_sessions or self._output.sketched:
            columns = names(self._output.staging_columns)
            self._execute(
                "take_state", staged_columns=columns, touched=self._touched("state")
            )
        if self._output.has_sessions:
            self._execute("join_sessions", by=self._by)
        if self._output.sketched:
            self._join_sketches()
        if self._output.waits:
            self._connection.execute(self._merged_state(), self._values)
        else:
            self._show(self._merged_state())

    def show_waiting(self) -> None:
        """Show the windows whose events have waited for long enough."""
        statement = "spend_state" if self._output.discards else "release_state"
        self._show(_SQL[statement].format(**self._tables, **self._state_columns))

    def settle(self) -> None:
        """Mark the windows that the watermark has passed; forget the final ones."""
        self._execute("close_panes" if self._output.discards else "settle_windows")
        self.settled += change_digested(
            self._connection,
            _SQL["forget_settled_state"].format(**self._tables),
            self._output.shown_by_state,
            self._values,
        )

    def _keep_former_rows(self) -> None:
        """Copy the settled rows that this batch changes to the revisions table."""
        columns = self._output.result_columns
        statement = _SQL["keep_former_rows"].format(
            **self._tables,
            touched=self._touched("target"),
            revisions=table_identifier(revisions_table(self._output.table)),
            columns=names(columns),
            former_columns=_COMMA.join(
                sql.Identifier("former", column.name) for column in columns
            ),
        )
        self.revisions += change_digested(
            self._connection,
            statement,
            stored(self._output.revision_columns),
            self._values,
        )

    def _join_sketches(self) -> None:
        """Leave the joined sketches in the first row of each window, and no others."""
        sketched = self._output.sketched
        put = _SQL["put_joined"].format(
            staging=self._staging,
            columns=_COMMA.join(
                sql.SQL("{} = CASE WHEN ctid = %(first)s::tid THEN {}::{} END").format(
                    sql.Identifier(partial.column.name),
                    sql.Placeholder(partial.column.name),
                    type_name(partial.column.postgres_type),
                )
                for aggregate in sketched
                for partial in aggregate.partials
            ),
        )
        with (
            self._connection.cursor("sketches") as windows,
            self._connection.cursor() as joined,
        ):
            windows.execute(
                _SQL["windows_in_parts"].format(
                    staging=self._staging,
                    keys=names(self._output.keys),
                    sketches=_COMMA.join(
                        sql.SQL("array_remove(array_agg({}), NULL)").format(
                            sql.Identifier(aggregate.partials[0].column.name)
                        )
                        for aggregate in sketched
                    ),
                ),
                self._values,
            )
            while found := windows.fetchmany(_WINDOWS_AT_ONCE):
                joined.executemany(put, [_joined(sketched, *row) for row in found])

    def _touched(self, stored: str) -> sql.Composed:
        """Return the condition that ``former``, a stored row, is of a staged window.

        Args:
            stored: The table that it is stored in: ``target`` or ``state``.
        """
        if self._output.has_sessions:
            return _SQL["touched_sessions"].format(
                staging=self._staging,
                stored=self._tables[stored],
                by=self._by,
                can_change=_CAN_CHANGE[stored],
            )
        return _SQL["touched_windows"].format(
            staging=self._staging,
            former_group=_group(self._output, "former"),
            staged_group=_group(self._output, "staged"),
        )

    def _merged_state(self) -> sql.Composed:
        partials = self._output.partials
        return _SQL["merge_state"].format(
            **self._tables,
            **self._state_columns,
            combined=_COMMA.join(partial.combined for partial in partials),
            merged=_COMMA.join(partial.merged for partial in partials),
        )

    def _show(self, source: sql.Composed) -> None:
        """Update the rows of some windows, or add rows for them.

        Args:
            source: The statement that returns their keys and partials.
        """
        output = self._output
        aggregates = [aggregate.column for aggregate in output.aggregates]
        put = _SQL["put_shown"].format(
            **self._tables,
            keys=names(output.keys),
            aggregates=names(aggregates),
            finals=_COMMA.join(aggregate.final for aggregate in output.aggregates),
            result_keys=names(output.result_keys),
            pane_number=sql.SQL(f", {SEQUENCE.name}" if output.discards else ""),
            pane_number_value=sql.SQL(", %(sequence)s" if output.discards else ""),
            updates=_COMMA.join(
                sql.SQL("{n} = EXCLUDED.{n}").format(n=sql.Identifier(name))
                for name in (*(column.name for column in aggregates), "pane", "final")
            ),
        )
        if not output.discards and not may_skip_rows(self._connection, output.table):
            self._execute("show_windows", source=source, put=put)
            return
        panes = row_hash(stored(output.pane_columns))
        digest = panes if output.discards else sql.SQL("0")
        row = self._execute(
            "show_counted", source=source, put=put, hash=digest
        ).fetchone()
        assert row is not None
        owed, rows, total = row
        if rows < owed:
            raise skips_rows(output.table, owed - rows)
        if output.discards:
            self.settled += RowDigest(rows, int(total))

    def _execute(
        self, statement: str, **identifiers: sql.Composable
    ) -> psycopg.Cursor[TupleRow]:
        composed = _SQL[statement].format(**self._tables, **identifiers)
        return self._connection.execute(composed, self._values)


def _group(output: WindowColumns, table: str) -> sql.Composable:
    """Return a group as one value; the constant is for a group without columns."""
    members = [sql.Identifier(table, column.name) for column in output.by]
    return sql.SQL("(ROW({})::record)").format(_COMMA.join([sql.SQL("0"), *members]))


def _joined(
    sketched: tuple[WindowAggregate, ...], places: list[str], *parts: list[bytes]
) -> dict[str, Any]:
    values: dict[str, Any] = {"first": places[0], "places": places}
    for aggregate, sketches in zip(sketched, parts, strict=True):
        sketch = sketch_of(aggregate)
        joined = sketch.join(sketches) if sketches else None
        estimate = None if joined is None else sketch.ask(joined)
        for partial, value in zip(aggregate.partials, (joined, estimate), strict=True):
            values[partial.column.name] = value
    return values
