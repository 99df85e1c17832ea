"""Finds values that Postgres or an output could not keep, before they break a batch.

A value that Postgres cannot store breaks a COPY for all rows. A row of a window table
or of keyed state does not even lead back to one event: if Postgres refused such a row,
the task could not tell which event is at fault. So the task looks in the events.

Each check looks at whole columns first, which is nearly free. It looks at single rows
only if a column holds something wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tallyweir.sinks.postgres.outputs.key_text import KEY_BYTES_MAX, format_key
from tallyweir.sinks.postgres.outputs.output import Output
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.seen_ids.ordering import BoolArray, I64Array
from tallyweir.spark_jobs.source import event_columns as named

#: 4714-11-24 BC, where Postgres' calendar begins, in microseconds and days from 1970.
_FIRST_INSTANT_US = -210_866_803_200_000_000
_FIRST_DAY = -2_440_588
#: 5874897-12-31, where its dates end.
_LAST_DAY = 2_145_042_905

_ASCII_MAX = 0x7F

#: How JSON writes a NUL, which ``jsonb`` refuses.
_JSON_ZERO = "\\u0000"
#: Matches it only after an even number of backslashes: in each pair, one escapes the
#: other. Both Python and Arrow read this pattern.
_JSON_ZERO_PATTERN = r"(^|[^\\])(\\\\)*\\u0000"


def stored_columns(table: pa.Table) -> pa.Table:
    """Choose the columns that can reach a user's table."""
    internal = {
        named.KEY,
        named.IS_KEY,
        named.BAD_HEADER,
        named.VALUE,
        named.CANONICAL,
        named.ORIGINAL,
        named.MISFIT,
        named.UNCOMPUTED,
        named.BROKEN_RULE,
        named.FAILED,
        named.MODEL_ERROR,
        named.TIMESTAMP,
        named.EVENT_TIME,
    }
    return table.select([name for name in table.column_names if name not in internal])


def find_unstorable(table: pa.Table) -> dict[int, str]:
    """Return the rows with a value that no Postgres column can hold, with a detail.

    Args:
        table: Columns in one chunk each.
    """
    found: dict[int, str] = {}
    seen: set[tuple[object, ...]] = set()
    for name in table.column_names:
        column = table.column(name)
        if column.num_chunks == 0 or (place := _place_of(column.chunk(0))) in seen:
            continue
        # A field may appear under a second name.
        seen.add(place)
        bad, what = _check_column(column.chunk(0))
        for row in np.flatnonzero(bad).tolist() if bad is not None else ():
            found.setdefault(row, f"Field {name} {what}.")
    return found


def find_json_zeros(column: pa.Array) -> BoolArray | None:
    """Tell which JSON texts hold a NUL, which ``jsonb`` refuses; None if none does."""
    if not pc.any(pc.match_substring(column, _JSON_ZERO)).as_py():
        return None
    found = pc.match_substring_regex(column, _JSON_ZERO_PATTERN)
    return np.asarray(found.fill_null(False))  # noqa: FBT003 - Arrow's own signature


def has_json_zero(text: str) -> bool:
    """Tell whether a JSON text holds a NUL, which ``jsonb`` refuses."""
    return _JSON_ZERO in text and bool(re.search(_JSON_ZERO_PATTERN, text))


def _place_of(column: pa.Array) -> tuple[object, ...]:
    """Identify a column's data: two columns with equal results are the same column."""
    buffers = (None if one is None else one.address for one in column.buffers())
    return str(column.type), column.offset, len(column), *buffers


def _check_column(column: pa.Array) -> tuple[BoolArray | None, str]:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _find_bad_text(column), "is not text that Postgres can store"
    if pa.types.is_timestamp(kind):
        instants = column.cast(pa.int64())
        return (
            _outside(instants, _FIRST_INSTANT_US, None),
            "is before the calendar of Postgres begins",
        )
    if pa.types.is_date32(kind):
        days = column.cast(pa.int32())
        return (
            _outside(days, _FIRST_DAY, _LAST_DAY),
            "is outside the calendar of Postgres",
        )
    return None, ""


def _outside(numbers: pa.Array, first: int, last: int | None) -> BoolArray | None:
    bounds = pc.min_max(numbers).as_py()
    if bounds["min"] is None:
        return None
    if bounds["min"] >= first and (last is None or bounds["max"] <= last):
        return None
    bad = pc.less(numbers, first)
    if last is not None:
        bad = pc.or_(bad, pc.greater(numbers, last))
    return np.asarray(bad.fill_null(False))  # noqa: FBT003 - Arrow's own signature


def _find_bad_text(column: pa.Array) -> BoolArray | None:
    """Find NUL characters and bytes that are not UTF-8."""
    if _is_clean(column):
        return None
    as_bytes = column.cast(
        pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary()
    )
    return np.fromiter(
        (value is not None and not _is_text(value) for value in as_bytes.to_pylist()),
        dtype=np.bool_,
        count=len(column),
    )


def _is_clean(column: pa.Array) -> bool:
    _, places, content = column.buffers()
    if content is None or len(column) == 0:
        return True
    width = np.int64 if pa.types.is_large_string(column.type) else np.int32
    offsets = np.frombuffer(places, width)[column.offset :][: len(column) + 1]
    own = np.frombuffer(content, np.uint8)[offsets[0] : offsets[-1]]
    if own.size == 0:
        return True
    if own.min() == 0:
        return False
    # However ASCII is cut into texts, each of them is UTF-8.
    return bool(own.max() <= _ASCII_MAX) or _is_utf8(column)


def _is_utf8(column: pa.Array) -> bool:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _is_text(value: bytes) -> bool:
    try:
        return "\x00" not in value.decode("utf-8")
    except UnicodeDecodeError:
        return False


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


def has_length(kind: pa.DataType) -> bool:
    """Tell whether values of a type are texts or bytes, of which each has a length."""
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


def _value_bytes(values: pa.Array) -> I64Array:
    if not has_length(values.type):
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
