"""Joins the sketches of a window's parts, which SQL cannot do."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.outputs.sketches import sketch_of
from tallyweir.sinks.postgres.outputs.window_aggregates import WindowAggregate
from tallyweir.sinks.postgres.outputs.window_columns import WindowColumns
from tallyweir.sinks.postgres.server.columns import names, type_name
from tallyweir.sinks.postgres.server.statements import load_statements

_SQL = load_statements("tallyweir.sinks.postgres.outputs", "sketch_join.sql")
_COMMA = sql.SQL(", ")

#: Windows whose sketches are in memory at a time; a sketch has a few kilobytes.
_WINDOWS_AT_ONCE = 500


class SketchJoin:
    """Joins the staged sketches of each window into one, in the publish transaction.

    Args:
        connection: In the publish transaction; the caller ends it.
        output: A window output with sketches.
        staging: Its staging table, which also holds the stored parts of the windows.
        transactions: The transactions that the voters have staged in, and this one.
    """

    def __init__(
        self,
        connection: psycopg.Connection[TupleRow],
        output: WindowColumns,
        staging: sql.Identifier,
        transactions: object,
    ) -> None:
        self._connection = connection
        self._output = output
        self._staging = staging
        self._transactions = transactions

    def run(self) -> None:
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
                {"transactions": self._transactions},
            )
            while found := windows.fetchmany(_WINDOWS_AT_ONCE):
                joined.executemany(put, [_joined(sketched, *row) for row in found])


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
