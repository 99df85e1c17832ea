"""Keeps a column from changing the values that are written to it.

A user's own table may have other types than the pipeline writes. Assignment silently
rounds to the scale of a numeric, cuts fractions of a second and pads text. Where a type
may do so, each value is cast to it and back before it is written. A value that comes
back changed is refused, as if the table had refused its row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.server.columns import Column, table_identifier, type_name
from tallyweir.sinks.postgres.server.statements import load_statements

_SQL = load_statements("tallyweir.sinks.postgres.tables", "exact_values.sql")

_Connection = psycopg.Connection[TupleRow]

_TEXTS = frozenset({"text", "character varying"})
_INSTANTS = frozenset({"timestamp with time zone", "timestamp without time zone"})
#: For each type that a pipeline writes, the other types that hold all of its values.
#: Connections use UTC, so an instant is the same with a time zone and without.
_HELD_BY: Mapping[str, frozenset[str]] = {
    "smallint": frozenset({"integer", "bigint", "numeric", "real", "double precision"}),
    "integer": frozenset({"bigint", "numeric", "double precision"}),
    "bigint": frozenset({"numeric"}),
    "real": frozenset({"double precision"}),
    "text": _TEXTS,
    "date": _INSTANTS,
    **dict.fromkeys(_INSTANTS, _INSTANTS),
}
#: Pairs of a type that is written and a column's type that changes nearly every value.
_HOPELESS = frozenset(
    {
        ("numeric", "real"),
        ("numeric", "double precision"),
        ("double precision", "real"),
    }
)


class TypesChangedError(psycopg.DataError):
    """The types of a table changed before the statement that writes to it locked them.

    Attributes:
        sqlstate: That of a statement that does not fit, or of one worth a retry.
    """

    def __init__(self, table: str, sqlstate: str) -> None:
        self.sqlstate = sqlstate
        super().__init__(f"the types of table {table} changed under its rows")


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnType:
    """The type of a column of a table.

    Attributes:
        declared: The type as Postgres writes it, with its modifier.
        base: For a domain, the type that it is based on; otherwise the same type.
    """

    declared: str
    base: str

    def holds(self, produced: str) -> bool:
        """Tell whether the column holds every value of a type unchanged."""
        return self.base == produced or self.base in _HELD_BY.get(produced, ())


def read_types(connection: _Connection, table: str) -> dict[str, ColumnType]:
    """Read the type of each column of a table."""
    name = table_identifier(table).as_string(connection)
    rows = connection.execute(_SQL["types"], {"table": name}).fetchall()
    return {
        column: ColumnType(declared=declared, base=base)
        for column, declared, base in rows
    }


def unfit_types(
    connection: _Connection, table: str, columns: Sequence[Column], *, per_value: bool
) -> list[str]:
    """Name columns of a table whose types may change the values written to them.

    Args:
        connection: A connection to its database.
        table: A table that exists.
        columns: The columns that the pipeline writes.
        per_value: Whether a single value can be refused; if so, the result has only
            columns whose types would change nearly every value.
    """
    types = read_types(connection, table)
    return [
        f"{column.name} is {found.declared}, not {column.postgres_type}"
        for column in columns
        if (found := types.get(column.name)) is not None
        and not found.holds(column.postgres_type)
        and (not per_value or (column.postgres_type, found.base) in _HOPELESS)
    ]


def exact_sources(
    connection: _Connection, table: str, columns: Sequence[Column]
) -> sql.Composed:
    """List the staged source of each column, guarded where its value could change."""
    types = read_types(connection, table)
    return sql.SQL(", ").join(
        exact_source(column, column.from_staging, types.get(column.name))
        for column in columns
    )


def exact_source(
    column: Column, source: sql.Composable, found: ColumnType | None
) -> sql.Composable:
    """Return a source, guarded if its target column could change the value."""
    if found is None or found.holds(column.postgres_type):
        return source
    is_padded = found.base.startswith(("character(", "bpchar"))
    return _SQL["guarded_padded" if is_padded else "guarded"].format(
        source=source,
        # Postgres itself wrote this name from its catalog.
        type=sql.SQL(found.declared),
        produced=type_name(column.postgres_type),
        name=sql.Literal(column.name),
        declared=sql.Literal(found.declared),
    )
