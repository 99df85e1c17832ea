"""Turn the values read from a field into a column of the reader's type.

The types are those of Spark's ``from_avro``: every kind of timestamp in microseconds,
text for an enum or a UUID, bytes for ``fixed``.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tallyweir.schemas.formats.avro.byte_cursor import BoolArray, ByteCursor
from tallyweir.schemas.formats.avro.column_texts import (
    find_bad_texts,
    find_no_uuids,
    gather_bytes,
    gather_texts,
)
from tallyweir.schemas.formats.avro.column_walk import Reading
from tallyweir.schemas.formats.decoded_columns import arrow_type
from tallyweir.schemas.schema_tree import (
    Enumeration,
    Fixed,
    Primitive,
    SchemaNode,
    item_of,
)

Fill = Callable[[ByteCursor, Reading], pa.Array]
"""Makes a column without nulls; flags rows that hold no value of their type."""

_MICROS_PER_MILLI = 1_000


def compile_fill(reader: SchemaNode, writer: SchemaNode) -> Fill:
    """Build the function that turns a writer's values into the reader's column.

    Args:
        reader: The column's type.
        writer: The type that ``compile_read`` read; the reader can resolve it.
    """
    read, written = item_of(reader), item_of(writer)
    if isinstance(written, Enumeration):
        assert isinstance(read, Enumeration), "an enum is read as an enum"
        return _fill_symbols(read, written)
    assert isinstance(written, Primitive | Fixed), "a type with parts is no column"
    kind = arrow_type(read)
    if written.logical == "decimal":
        return _fill_wide(kind)
    if isinstance(written, Fixed) or written.kind == "bytes":
        return _fill_bytes
    match written.kind:
        case "string":
            is_uuid = written.logical == "uuid"
            return _fill_texts(kind, is_uuid=is_uuid)
        case "boolean":
            return _fill_booleans
        case _:
            is_millis = str(written.logical).endswith("-millis")
            return _fill_numbers(kind, _MICROS_PER_MILLI if is_millis else 1)


def fill_default(node: SchemaNode, default: object, rows: int) -> pa.Array:
    """Make a column of a field's default, as it stands in the schema's JSON."""
    kind = arrow_type(node)
    if default is None:
        return pa.nulls(rows, kind)
    return pa.repeat(pa.scalar(_default_value(item_of(node), default), kind), rows)


def with_nulls(column: pa.Array, is_valid: BoolArray | None) -> pa.Array:
    """Return a column of the same values, with nulls where it is not valid.

    Args:
        column: A column without an offset.
        is_valid: Which rows are valid; also covers the nulls that the column already
            has. None if every row is valid.
    """
    if is_valid is None or column.null_count == len(column):
        return column
    buffers = column.buffers()
    buffers[0] = pa.py_buffer(np.packbits(is_valid, bitorder="little"))
    return pa.Array.from_buffers(column.type, len(column), buffers)


def make_column(
    fill: Fill, kind: pa.DataType, cursor: ByteCursor, reading: Reading
) -> pa.Array:
    """Make a column of the values read; the caller adds the nulls."""
    if len(reading.values) == 0:
        return pa.nulls(cursor.at.size, kind)
    return fill(cursor, reading)


def _fill_symbols(reader: Enumeration, writer: Enumeration) -> Fill:
    known = set(reader.symbols)
    read_as = [one if one in known else reader.default for one in writer.symbols]
    symbols = pa.array(read_as, pa.string())

    def fill(_: ByteCursor, reading: Reading) -> pa.Array:
        return symbols.take(pa.array(reading.values))

    return fill


def _fill_texts(kind: pa.DataType, *, is_uuid: bool) -> Fill:
    is_read_as_bytes = kind == pa.binary()

    def fill(cursor: ByteCursor, reading: Reading) -> pa.Array:
        spans = reading.values
        texts = gather_texts(cursor.content, spans)
        bad = find_bad_texts(texts)
        if bad:
            cursor.is_bad[bad] = True
            # A column of texts must hold valid UTF-8 even in rows that become null.
            spans[bad, 1] = spans[bad, 0]
            texts = gather_texts(cursor.content, spans)
        if is_uuid:
            cursor.is_bad[find_no_uuids(texts, reading.is_present)] = True
        return texts.view(kind) if is_read_as_bytes else texts

    return fill


def _fill_bytes(cursor: ByteCursor, reading: Reading) -> pa.Array:
    return gather_bytes(cursor.content, reading.values)


def _fill_booleans(_: ByteCursor, reading: Reading) -> pa.Array:
    bits = pa.py_buffer(np.packbits(reading.values, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(reading.values), [None, bits])


def _fill_wide(kind: pa.DataType) -> Fill:
    def fill(_: ByteCursor, reading: Reading) -> pa.Array:
        values = reading.values
        return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])

    return fill


def _fill_numbers(kind: pa.DataType, factor: int) -> Fill:
    storage = _storage(kind)

    def fill(_: ByteCursor, reading: Reading) -> pa.Array:
        values = reading.values if factor == 1 else reading.values * factor
        values = values.astype(storage, copy=False)
        return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])

    def fill_floats(cursor: ByteCursor, reading: Reading) -> pa.Array:
        # NaN stays NaN in the cast; numpy would warn about it.
        with np.errstate(invalid="ignore"):
            return fill(cursor, reading)

    return fill_floats if pa.types.is_floating(kind) else fill


def _storage(kind: pa.DataType) -> npt.DTypeLike:
    if pa.types.is_floating(kind):
        return np.float32 if kind == pa.float32() else np.float64
    return np.int32 if kind.bit_width == 32 else np.int64  # noqa: PLR2004


def _default_value(node: SchemaNode, default: object) -> object:
    """Return a default as the value that Arrow accepts for the column's type."""
    if not isinstance(node, Primitive | Fixed):
        return default
    if node.logical == "decimal":
        unscaled = int.from_bytes(_default_bytes(default), signed=True)
        digits = tuple(map(int, str(abs(unscaled))))
        return Decimal((unscaled < 0, digits, -node.scale))
    if isinstance(node, Fixed) or node.kind == "bytes":
        return _default_bytes(default)
    if node.kind in {"float", "double"}:
        assert isinstance(default, int | float), "the contract was checked"
        return float(default)
    if str(node.logical).endswith("-millis"):
        assert isinstance(default, int), "the contract was checked"
        return default * _MICROS_PER_MILLI
    return default


def _default_bytes(default: object) -> bytes:
    """Return the bytes that a default's characters stand for, one byte each."""
    assert isinstance(default, str), "the contract was checked"
    return default.encode("latin-1", errors="replace")
