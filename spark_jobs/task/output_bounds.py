"""Finds events that an output could not keep, before they break a whole batch.

A row of a window table or of keyed state does not lead back to one event. If Postgres
refused such a row, the task could not tell which event is at fault. So the task looks
in the events for the values that Postgres would refuse.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tallyweir.sinks.postgres.outputs.key_text import KEY_BYTES_MAX, format_key
from tallyweir.sinks.postgres.outputs.output import Output
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.spark_jobs.source import event_columns as named
from tallyweir.spark_jobs.task.postgres_values import find_json_zeros

I64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

#: The size of a decimal with 38 digits. No other value takes more, except text and
#: bytes.
_PLAIN_BYTES_MAX = 25
#: A control character has one byte in a value, and six in a key's text.
_ESCAPED_BYTES_MAX = 6
_QUOTED_BYTES = 3
_BRACKETS_BYTES = 2


def find_long_keys(
    table: pa.Table, alive: BoolArray, outputs: Sequence[Output]
) -> Iterator[tuple[int, str]]:
    """Yield rows whose key is too long for an output that wants them, with a detail.

    Args:
        table: The event frame's columns, one chunk each.
        alive: The rows to check: those that no verdict has taken yet.
        outputs: The pipeline's outputs, in its order.
    """
    for number, output in enumerate(outputs):
        if not (output.index_key or output.text_key):
            continue
        candidates = alive & _is_taken(table, number)
        sizes = _key_bytes(table, output.index_key)
        if output.text_key:
            texts = _key_text_bytes(table, output.text_key, candidates)
            sizes = np.maximum(sizes, texts)
        for row in np.flatnonzero(candidates & (sizes > KEY_BYTES_MAX)).tolist():
            detail = (
                f"The event's key in {output.table} has {sizes[row]} bytes; "
                f"{KEY_BYTES_MAX} are allowed."
            )
            yield row, detail


def find_nested_zeros(
    table: pa.Table, alive: BoolArray, outputs: Sequence[Output]
) -> Iterator[tuple[int, str]]:
    """Yield rows with a nested value that a function could not return, with a detail.

    Args:
        table: The event frame's columns, one chunk each.
        alive: The rows to check: those that no verdict has taken yet.
        outputs: The pipeline's outputs, in its order.
    """
    for number, output in enumerate(outputs):
        for column in output.function_columns:
            if column.postgres_type != "jsonb":
                continue
            found = find_json_zeros(table.column(column.name).chunk(0))
            if found is None:
                continue
            taken = found & alive & _is_taken(table, number)
            for row in np.flatnonzero(taken).tolist():
                yield row, f"Field {column.name} has a NUL, which jsonb refuses."


def _is_taken(table: pa.Table, number: int) -> BoolArray:
    """Tell which rows an output would take; filters may keep long keys from it."""
    taken = np.ones(table.num_rows, dtype=np.bool_)
    wanted = named.wanted_column(number)
    if wanted in table.column_names:
        taken &= np.asarray(table.column(wanted).chunk(0))
    if named.FILTERED_BY in table.column_names:
        taken &= np.asarray(table.column(named.FILTERED_BY).chunk(0).is_null())
    return taken


def _key_bytes(table: pa.Table, columns: Sequence[Column]) -> I64Array:
    """Return the most bytes that each key's values can take in an index."""
    return reduce(
        np.add,
        (_value_bytes(table.column(column.name).chunk(0)) for column in columns),
        np.zeros(table.num_rows, dtype=np.int64),
    )


def _value_bytes(values: pa.Array) -> I64Array:
    kind = values.type
    has_length = (
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )
    if not has_length:
        return np.full(len(values), _PLAIN_BYTES_MAX, dtype=np.int64)
    return np.asarray(pc.binary_length(values).fill_null(0)).astype(np.int64)


def _key_text_bytes(
    table: pa.Table, columns: Sequence[Column], candidates: BoolArray
) -> I64Array:
    """Count the bytes of keys as text; the count is exact where it may be too high."""
    punctuation = _BRACKETS_BYTES + _QUOTED_BYTES * len(columns)
    sizes = _key_bytes(table, columns)
    doubtful = sizes * _ESCAPED_BYTES_MAX + punctuation > KEY_BYTES_MAX
    arrays = [table.column(column.name).chunk(0) for column in columns]
    for row in np.flatnonzero(doubtful & candidates).tolist():
        key = format_key([array[row].as_py() for array in arrays])
        sizes[row] = len(key.encode())
    return sizes
