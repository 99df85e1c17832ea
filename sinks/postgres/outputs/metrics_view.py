"""A window table as a view of metrics: a row for each window, group and aggregate."""

from __future__ import annotations

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.outputs.window_columns import WindowColumns
from tallyweir.sinks.postgres.server.columns import table_identifier
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.errors import ConfigurationError

_SQL = load_statements("tallyweir.sinks.postgres.outputs", "metrics_view.sql")
_NUMBERS = frozenset({"bigint", "integer", "smallint", "numeric", "double precision"})


def create_metrics_view(
    connection: psycopg.Connection[TupleRow], output: WindowColumns, view: str
) -> None:
    """Create the view as the output is defined now; the caller commits.

    Its columns are ``timestamp``, where the window ends, ``metric_name``, ``value`` as
    numeric, ``dimensions`` as jsonb and ``window_start``. A view with this definition
    is left alone, so that a role without the right to change the schema can start.

    Raises:
        ConfigurationError: ``METRICS_EMPTY``: no aggregate is a number;
            ``TABLE_DIFFERS``: something else has the name.
    """
    statement = _statement(connection, output, view)
    name = table_identifier(view)
    found = connection.execute(
        _SQL["read_definition"], {"view": name.as_string(connection)}
    ).fetchone()
    if found == (statement,):
        return
    try:
        with connection.transaction():
            connection.execute(statement.encode())
            connection.execute(
                _SQL["describe"].format(view=name, definition=sql.Literal(statement))
            )
    except (
        psycopg.errors.WrongObjectType,
        psycopg.errors.InvalidTableDefinition,
    ) as error:
        raise ConfigurationError(
            "TABLE_DIFFERS",
            saw=f"{view} exists and is not a view of metrics: "
            f"{error.diag.message_primary}.",
            why=f"The metrics of {output.table} need a view of that name.",
            fix="Drop it, or name another view.",
        ) from error


def _statement(
    connection: psycopg.Connection[TupleRow], output: WindowColumns, view: str
) -> str:
    """Write the view's definition; the view's comment keeps it for comparison."""
    numbers = [
        aggregate.column.name
        for aggregate in output.aggregates
        if aggregate.column.postgres_type in _NUMBERS
    ]
    if not numbers:
        raise ConfigurationError(
            "METRICS_EMPTY",
            saw=f"No aggregate of {output.table} is a number.",
            why=f"The view {view} has a row for each numeric aggregate.",
            fix="Leave metrics out, or add an aggregate such as count(*).",
        )
    dimensions = [
        part
        for column in output.by
        for part in (sql.Literal(column.name), _kept(column.name))
    ]
    metrics = [
        sql.SQL("({}, {}::numeric)").format(sql.Literal(name), _kept(name))
        for name in numbers
    ]
    composed = _SQL["create"].format(
        view=table_identifier(view),
        table=table_identifier(output.table),
        dimensions=sql.SQL(", ").join(dimensions),
        metrics=sql.SQL(", ").join(metrics),
    )
    return composed.as_string(connection)


def _kept(column: str) -> sql.Composable:
    return sql.Identifier("kept", column)
