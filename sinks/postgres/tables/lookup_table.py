"""Reads a lookup table whole, for enrichment."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.server.columns import (
    Column,
    names,
    table_identifier,
    type_name,
)
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.sqlstate import translate, translated
from tallyweir.sinks.postgres.tables.table_owners import check_meant
from tallyweir.sinks.protocol.errors import ConfigurationError

#: A lookup travels to every executor with each batch, so it must be small: rows, and
#: bytes of their values in memory.
LOOKUP_ROWS_MAX = 200_000
LOOKUP_BYTES_MAX = 64 * 1024 * 1024

#: Rows that the server sends at a time, so that a large table is noticed early.
_ROWS_A_FETCH = 10_000

_ARROW_TYPES: Mapping[str, pa.DataType] = {
    "bool": pa.bool_(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "float4": pa.float64(),
    "float8": pa.float64(),
    "int2": pa.int64(),
    "int4": pa.int64(),
    "int8": pa.int64(),
    "numeric": pa.decimal128(38, 18),
    "bpchar": pa.string(),
    "name": pa.string(),
    "text": pa.string(),
    "varchar": pa.string(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupTable:
    """A copy of a lookup table.

    Attributes:
        rows: The wanted columns, in their order.
        version: Changes when the rows change; the ledger keeps it.
    """

    rows: pa.Table
    version: str


def create_lookup_table(
    dsn: str,
    table: str,
    columns: Sequence[Column],
    rows: Iterable[Sequence[str | None]],
) -> None:
    """Create a lookup table, and put in rows that are given as texts.

    Args:
        dsn: libpq connection string of a database that lacks the table.
        table: Its name.
        columns: Its columns.
        rows: Values in the order of the columns, as Postgres reads each type.

    Raises:
        ConfigurationError: ``LOOKUP_TYPE``: a text is no value of its type.
        RetryableError: The server is unreachable.
    """
    create = sql.SQL("CREATE TABLE {} ({})").format(
        table_identifier(table),
        sql.SQL(", ").join(column.definition for column in columns),
    )
    insert = sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
        table_identifier(table),
        names(columns),
        sql.SQL(", ").join(
            sql.SQL("CAST({} AS {})").format(
                sql.Placeholder(), type_name(column.postgres_type)
            )
            for column in columns
        ),
    )
    with (
        translated(f"filling lookup table {table}"),
        connect(dsn, application_name="tallyweir lookup") as connection,
    ):
        connection.execute(create)
        try:
            connection.cursor().executemany(insert, rows)
        except psycopg.DataError as error:
            raise _unfit(table, str(error.diag.message_primary)) from error


def read_lookup_table(
    dsn: str, table: str, columns: Mapping[str, str], *, endless: Sequence[str] = ()
) -> LookupTable:
    """Read a lookup table in one snapshot.

    Args:
        dsn: libpq connection string of its database.
        table: Its name.
        columns: The table's column for each name in the copy.
        endless: Names in the copy of columns whose infinite values are read as null.

    Raises:
        ConfigurationError: ``LOOKUP_MISSING`` (no such table or column),
            ``TABLE_ELSEWHERE`` (another schema has one of that name),
            ``LOOKUP_TYPE`` (a type or value that events cannot carry) or
            ``LOOKUP_TOO_LARGE``.
        RetryableError: The server is unreachable.
    """
    statement = sql.SQL("SELECT {} FROM {} ORDER BY {} LIMIT {}").format(
        sql.SQL(", ").join(
            _wanted(column, is_endless=name in endless)
            for name, column in columns.items()
        ),
        table_identifier(table),
        sql.SQL(", ").join(sql.Literal(n + 1) for n in range(len(columns))),
        sql.Literal(LOOKUP_ROWS_MAX + 1),
    )
    wanted = ", ".join(dict.fromkeys(columns.values()))
    with (
        connect(dsn, application_name="tallyweir lookup") as connection,
        connection.cursor("lookup") as cursor,
    ):
        with translated(f"looking for lookup table {table}"):
            check_meant(connection, table, is_new=True)
        try:
            cursor.itersize = _ROWS_A_FETCH
            cursor.execute(statement)
            types = [_arrow_type(connection, one, table) for one in _described(cursor)]
            rows = list(_within_limits(cursor, table))
        except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn) as error:
            raise ConfigurationError(
                "LOOKUP_MISSING",
                saw=f"Reading {wanted} of lookup table {table} failed: "
                f"{error.diag.message_primary}.",
                why="Events cannot be enriched without it.",
                fix="Create the table, or correct enrich in the pipeline file.",
            ) from error
        except (psycopg.DataError, psycopg.errors.UndefinedFunction) as error:
            raise _unfit(table, f"Reading {wanted} of it failed: {error}") from error
        except psycopg.Error as error:
            raise translate(error, doing=f"reading lookup table {table}") from error
    digest = hashlib.sha256(repr(rows).encode()).hexdigest()[:16]
    return LookupTable(
        rows=_as_arrow(rows, list(columns), types, table),
        version=f"{len(rows)} rows, {digest}",
    )


def too_large(lookup: str, limit: str) -> ConfigurationError:
    """Return the error for a lookup that exceeds a limit."""
    return ConfigurationError(
        "LOOKUP_TOO_LARGE",
        saw=f"The lookup {lookup} has more than {limit}.",
        why="Every task holds the lookup in memory.",
        fix="Look up a smaller table, view or topic, or fewer columns of it.",
    )


def _wanted(column: str, *, is_endless: bool) -> sql.Composable:
    name = sql.Identifier(column)
    if not is_endless:
        return name
    # Compared as text, so that a column of any type can be read.
    return sql.SQL(
        "CASE WHEN {0}::text NOT IN ('infinity', '-infinity') THEN {0} END"
    ).format(name)


def _described(cursor: psycopg.ServerCursor[TupleRow]) -> list[psycopg.Column]:
    assert cursor.description is not None, "a SELECT describes its columns"
    return cursor.description


def _arrow_type(
    connection: psycopg.Connection[TupleRow], column: psycopg.Column, table: str
) -> pa.DataType:
    """Choose by the column's declared type, so that an empty table has types too."""
    known = connection.adapters.types.get(column.type_code)
    if known is None:
        # An enumeration, for example; psycopg reads what it does not know as text.
        return pa.string()
    kind = _ARROW_TYPES.get(known.name) if known.oid == column.type_code else None
    if kind is None:
        raise _unfit(table, f"Column {column.name} is of type {column.type_display}")
    return kind


def _within_limits(
    cursor: psycopg.ServerCursor[TupleRow], table: str
) -> Iterator[TupleRow]:
    size = 0
    for number, row in enumerate(cursor):
        if number == LOOKUP_ROWS_MAX:
            raise too_large(table, f"{LOOKUP_ROWS_MAX:,} rows")
        size += sum(_size(value) for value in row)
        if size > LOOKUP_BYTES_MAX:
            raise too_large(table, f"{LOOKUP_BYTES_MAX:,} bytes")
        yield row


def _size(value: object) -> int:
    return len(value) if isinstance(value, str | bytes) else 8


def _as_arrow(
    rows: Sequence[tuple[Any, ...]],
    names: Sequence[str],
    types: Sequence[pa.DataType],
    table: str,
) -> pa.Table:
    schema = pa.schema(list(zip(names, types, strict=True)))
    values = list(zip(*rows, strict=True)) or [()] * len(names)
    try:
        columns = [
            pa.array(column, kind) for column, kind in zip(values, types, strict=True)
        ]
    except pa.ArrowInvalid as error:
        # A numeric with more digits than Arrow's decimal has, or NaN.
        raise _unfit(table, f"A value does not fit its type: {error}") from error
    return pa.table(columns, schema=schema)


def _unfit(table: str, saw: str) -> ConfigurationError:
    return ConfigurationError(
        "LOOKUP_TYPE",
        saw=f"Lookup table {table}: {saw}.",
        why="Events cannot be enriched with such values.",
        fix="Cast it in a view, for example to text, and look up the view.",
    )
