"""Staged events as Arrow tables, and result rows as Arrow columns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa

from tallyweir.schemas.pipeline.outputs.stateful import Json
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.spark_jobs.task.postgres_values import find_unstorable, has_json_zero

_ARROW_TYPES: Mapping[str, pa.DataType] = {
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "double precision": pa.float64(),
    "integer": pa.int32(),
    # Text, as it is staged.
    "jsonb": pa.string(),
    "real": pa.float32(),
    "smallint": pa.int16(),
    "text": pa.string(),
    "timestamp with time zone": pa.timestamp("us", "UTC"),
    "timestamp without time zone": pa.timestamp("us"),
}


class JsonText(str):
    """A nested value that is JSON text already, as in events."""

    __slots__ = ()


def tables_by_key(
    columns: Sequence[Column], rows: Sequence[tuple[Any, ...]]
) -> Iterator[tuple[str, pa.Table]]:
    """Yield each key with the table of its events, in the order of the rows.

    Args:
        columns: Columns of the rows, without the last value.
        rows: Rows ordered by key, which is the last value of each.
    """
    first = 0
    whole = _table(columns, rows)
    for key, group in groupby(rows, key=lambda row: row[-1]):
        length = sum(1 for _ in group)
        yield key, whole.slice(first, length)
        first += length


def no_events(columns: Sequence[Column]) -> pa.Table:
    """Return the empty table of a key that has only a timer."""
    return _table(columns, ())


def result_table(
    columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]
) -> pa.Table:
    """Turn result rows into the staged columns.

    Raises:
        TypeError, ValueError, OverflowError: A value is not of its column's type, or
            Postgres cannot hold it.
    """
    arrays = [
        pa.array([_staged(row.get(c.name), c) for row in rows], _arrow_type(c))
        if c.postgres_type != "numeric"
        else _numeric([row.get(c.name) for row in rows])
        for c in columns
    ]
    table = pa.table(arrays, names=[column.name for column in columns])
    for row, what in find_unstorable(table.combine_chunks()).items():
        raise ValueError(f"row {row}: {what}")
    return table


def _staged(value: Json, column: Column) -> Json:
    if column.postgres_type == "jsonb" and value is not None:
        is_text = isinstance(value, JsonText)
        text = str(value) if is_text else json.dumps(value, allow_nan=False)
        if has_json_zero(text):
            raise ValueError("jsonb holds no zero character")
        return text
    return value


def _table(columns: Sequence[Column], rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    arrays = [
        _numeric([row[index] for row in rows])
        if column.postgres_type == "numeric"
        else pa.array([row[index] for row in rows], _arrow_type(column))
        for index, column in enumerate(columns)
    ]
    return pa.table(arrays, names=[column.name for column in columns])


def _numeric(values: list[Any]) -> pa.Array:
    """Choose enough digits for the values; a column of nulls gets a default."""
    if all(value is None for value in values):
        return pa.array(values, pa.decimal128(38, 9))
    return pa.array(values)


def _arrow_type(column: Column) -> pa.DataType:
    return _ARROW_TYPES[column.postgres_type]
