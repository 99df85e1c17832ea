"""How long would the canonical Avro body of each decoded row be?

Spark's ``from_avro`` ignores what follows a record. Avro has one shortest form for
every value, so a body that is as long as that form was used up to its last byte,
and a longer one holds trailing bytes or a clumsy encoder's numbers: only those few
rows need ``codec.decode``. Everything here is a few numpy operations per column,
because it runs on every event.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.contract import Contract
from schemas.schema_tree import (
    Enumeration,
    Fixed,
    Nullable,
    Primitive,
    SchemaNode,
)

Lengths = npt.NDArray[np.int64]

NOT_ENCODABLE = -(1 << 40)
"""Far below zero, so that a sum with it stays below zero."""

_WIDTHS = {"boolean": 1, "float": 4, "double": 8}
_SMALL_ENUM = 64
_MICROS_PER_MILLI = 1_000


def encoded_length(contract: Contract, columns: pa.RecordBatch) -> Lengths | None:
    """Compute the length in bytes of each row's canonical body, without its frame.

    Args:
        contract: Whose layout counts.
        columns: The decoded fields as columns of the same names, with the types
            that Spark's ``from_avro`` gives: ``timestamp[us]`` for every kind of
            timestamp, ``date32``, ``decimal128``, strings for enums.

    Returns:
        One length per row; below zero where the row lacks a value that the contract
        requires (or holds an unknown enum symbol), which no length can match. None
        for a contract with nested fields: decode its rows strictly instead.

    Raises:
        TypeError: A column's type is not what its field decodes to.
    """
    nodes = [field.node for field in contract.tree.fields]
    if not all(_is_flat(node) for node in nodes):
        return None
    total = np.zeros(columns.num_rows, dtype=np.int64)
    for field in contract.tree.fields:
        total += _column_lengths(field.node, columns.column(field.name))
    np.copyto(total, -1, where=total < 0)
    return total


def _is_flat(node: SchemaNode) -> bool:
    item = node.item if isinstance(node, Nullable) else node
    return isinstance(item, Primitive | Fixed | Enumeration)


def _column_lengths(node: SchemaNode, column: pa.Array) -> Lengths | int:
    item = node.item if isinstance(node, Nullable) else node
    lengths = _value_lengths(item, column)
    if isinstance(node, Nullable):
        if column.null_count == 0:
            return lengths + 1
        return np.where(_is_valid(column), lengths + 1, 1)
    if column.null_count:
        return np.where(_is_valid(column), lengths, NOT_ENCODABLE)
    return lengths


def _value_lengths(node: SchemaNode, column: pa.Array) -> Lengths | int:
    """Lengths of the values, ignoring nulls (whose slots may hold anything)."""
    if isinstance(node, Enumeration):
        return _enumeration_lengths(node, column)
    if isinstance(node, Fixed):
        return node.size
    assert isinstance(node, Primitive)
    if node.logical == "decimal":
        return _sized(_decimal_bytes(node, column))
    match node.kind:
        case "string" | "bytes":
            return _sized(_content_bytes(column))
        case "int" | "long":
            return _number_lengths(_numbers(node, column))
        case _:
            return _WIDTHS[node.kind]


def _number_lengths(values: npt.NDArray[np.int64]) -> Lengths | int:
    """Length of each zigzag variable-length number: seven bits a byte."""
    if values.size == 0:
        return 0
    # x ^ (x >> 63) is x or -x - 1: one bit shorter than the zigzag form, no sign.
    magnitudes = (values ^ (values >> 63)).view(np.uint64)
    shortest = _bytes_of(int(magnitudes.min()))
    longest = _bytes_of(int(magnitudes.max()))
    if shortest == longest:
        return shortest
    lengths = np.full(values.size, shortest, dtype=np.int64)
    for size in range(shortest, longest):
        lengths += magnitudes >= np.uint64(1 << (7 * size - 1))
    return lengths


def _bytes_of(magnitude: int) -> int:
    return magnitude.bit_length() // 7 + 1


def _sized(content: Lengths) -> Lengths:
    """Add the bytes of the length that goes in front of text and bytes."""
    return content + _number_lengths(content)


def _numbers(node: Primitive, column: pa.Array) -> npt.NDArray[np.int64]:
    """The whole numbers that go on the wire for a column."""
    match node.logical or node.kind:
        case "date":
            _require_type(column, pa.date32())
            return _values(column, "<i4").astype(np.int64)
        case "int":
            _require_type(column, pa.int32())
            return _values(column, "<i4").astype(np.int64)
        case "long":
            _require_type(column, pa.int64())
            return _values(column, "<i8")
        case logical:
            _require_type(
                column, pa.timestamp("us", tz=getattr(column.type, "tz", None))
            )
            micros = _values(column, "<i8")
            if logical.endswith("millis"):
                return micros // _MICROS_PER_MILLI
            return micros


def _content_bytes(column: pa.Array) -> Lengths:
    """Bytes of each text or byte string, from the column's offsets alone."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        width = "<i4"
    elif pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        width = "<i8"
    else:
        raise TypeError(f"expected a column of strings or binaries, got {kind}")
    return np.diff(_values(column, width, extra=1)).astype(np.int64)


def _decimal_bytes(node: Primitive, column: pa.Array) -> Lengths:
    """Bytes of each unscaled number in its shortest two's complement form."""
    _require_type(column, pa.decimal128(node.precision, node.scale))
    halves = _values(column, "<i8,<i8")
    low, high = halves["f0"], halves["f1"]
    sign = high >> 63
    low_bits = (low ^ sign).view(np.uint64)
    high_bits = (high ^ sign).view(np.uint64)
    lengths = np.ones(len(column), dtype=np.int64)
    for size in range(1, 9):
        limit = np.uint64(1 << (8 * size - 1))
        lengths += (low_bits >= limit) | (high_bits > 0)
    for size in range(1, 8):
        lengths += high_bits >= np.uint64(1 << (8 * size - 1))
    return lengths


def _enumeration_lengths(node: Enumeration, column: pa.Array) -> Lengths | int:
    indices = pc.index_in(column, value_set=pa.array(node.symbols, pa.string()))
    known = indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    lengths = _number_lengths(np.maximum(known, 0))
    if (known < 0).any():
        return np.where(known < 0, NOT_ENCODABLE, lengths)
    return lengths


def _values(column: pa.Array, width: str, *, extra: int = 0) -> npt.NDArray[Any]:
    """View the column's buffer, without a copy and without a look at nulls."""
    if len(column) == 0:
        return np.zeros(extra, dtype=width)
    values = np.frombuffer(column.buffers()[1], dtype=width)
    return values[column.offset : column.offset + len(column) + extra]


def _is_valid(column: pa.Array) -> npt.NDArray[np.bool_]:
    valid: npt.NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _require_type(column: pa.Array, expected: pa.DataType) -> None:
    if column.type != expected:
        raise TypeError(f"expected a column of {expected}, got {column.type}")
