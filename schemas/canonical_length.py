"""Which decoded rows are beyond doubt what their bytes say?

Spark's ``from_avro`` ignores what follows a record. Avro has one shortest form for
every value, so a body that is as long as that form was used up to its last byte,
and a longer one holds trailing bytes or a clumsy encoder's numbers.

It also guesses where the bytes are no value: a boolean of 2 becomes false, a number
loses the bits that are too many for it, and any text passes for a UUID. In a body of
the right length it is known where each field ends, so that a look at single bytes
finds these.

Only the rows in doubt need ``codec.decode``. Everything here is a few numpy
operations per column, because it runs on every event.
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
from schemas.strict_walk import INT_BYTES_MAX, LONG_BYTES_MAX, NUMBER_BOUNDS
from schemas.wire_format import HEADER_BYTES, frame

BoolArray = npt.NDArray[np.bool_]
Lengths = npt.NDArray[np.int64]

NOT_ENCODABLE = -(1 << 40)
"""Far below zero, so that a sum with it stays below zero."""

_WIDTHS = {"boolean": 1, "float": 4, "double": 8}
_SMALL_ENUM = 64
_MICROS_PER_MILLI = 1_000
#: The last byte of a number says that nothing follows.
_LAST_BYTE_MAX = 0x7F
#: What 32 and 64 bits leave of it in a number of all the bytes that there may be.
_WIDEST = {"int": (INT_BYTES_MAX, 0x0F), "long": (LONG_BYTES_MAX, 0x01)}
#: Logical types whose values are fewer than those of the type they are written as.
_NARROWER = {"uuid", *NUMBER_BOUNDS} - {"int", "long"}
_UUID = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"


def find_doubtful(
    contract: Contract, payloads: pa.Array, columns: pa.RecordBatch
) -> BoolArray:
    """Tell which rows must be decoded strictly before they count as events.

    No other row is anything but what ``codec.decode`` reads from its payload, if its
    texts are UTF-8.

    Args:
        contract: What the rows were decoded as.
        payloads: Framed, as Kafka delivered them.
        columns: As in ``encoded_ends``.

    Returns:
        One flag per row; all of them set for a contract with nested fields.

    Raises:
        TypeError: A column's type is not what its field decodes to.
    """
    ends = encoded_ends(contract, columns)
    if ends is None:
        return np.ones(len(payloads), dtype=np.bool_)
    if len(payloads) == 0:
        return np.zeros(0, dtype=np.bool_)
    sizes = np.asarray(pc.binary_length(payloads).fill_null(-1))
    doubtful: BoolArray = sizes != ends[-1] + HEADER_BYTES
    starts = _values(payloads, _offset_width(payloads), extra=1)[:-1].astype(np.int64)
    content = np.frombuffer(payloads.buffers()[2] or b"", dtype=np.uint8)
    if content.size == 0:
        return doubtful

    def bytes_at(positions: Lengths | int) -> npt.NDArray[np.uint8]:
        # Positions of rows of another length mean nothing, and need not exist.
        found: npt.NDArray[np.uint8] = content[
            np.clip(starts + positions, 0, content.size - 1)
        ]
        return found

    for position, byte in enumerate(frame(contract.schema_id, b"")):
        doubtful |= bytes_at(position) != byte
    begin: Lengths | int = 0
    for field, end in zip(contract.tree.fields, ends, strict=True):
        column = columns.column(field.name)
        item = _item(field.node)
        limits = _last_byte_limits(item, column, end - begin)
        if limits is not None:
            beyond = bytes_at(HEADER_BYTES + end - 1) > limits
            doubtful |= beyond & _is_valid(column)
        if isinstance(item, Primitive) and item.logical in _NARROWER:
            doubtful |= _is_no_value(item, column)
        begin = end
    return doubtful


def encoded_ends(contract: Contract, columns: pa.RecordBatch) -> list[Lengths] | None:
    """Compute where each field ends in each row's canonical body, without its frame.

    Args:
        contract: Whose layout counts.
        columns: The decoded fields as columns of the same names, with the types
            that Spark's ``from_avro`` gives: ``timestamp[us]`` for every kind of
            timestamp, ``date32``, ``decimal128``, strings for enums.

    Returns:
        By field, the bytes to its end in each row. The last is the body's length;
        below zero where the row lacks a value that the contract requires (or holds
        an unknown enum symbol), which no length can match. None for a contract with
        nested fields: decode its rows strictly instead.

    Raises:
        TypeError: A column's type is not what its field decodes to.
    """
    fields = contract.tree.fields
    items = [_item(field.node) for field in fields]
    if not all(isinstance(item, Primitive | Fixed | Enumeration) for item in items):
        return None
    ends: list[Lengths] = []
    end: Lengths = np.zeros(columns.num_rows, dtype=np.int64)
    for field in fields:
        end = end + _column_lengths(field.node, columns.column(field.name))
        ends.append(end)
    return ends


def _last_byte_limits(
    node: SchemaNode, column: pa.Array, lengths: Lengths
) -> npt.NDArray[np.uint8] | int | None:
    """Return the highest last byte of a value, where Spark takes higher ones."""
    if not isinstance(node, Primitive) or node.kind not in {"boolean", *_WIDEST}:
        return None
    if node.kind == "boolean":
        return 1
    widest, limit = _WIDEST[node.kind]
    if lengths.max() < widest:
        return None
    bare = _number_lengths(_numbers(node, column))
    return np.where(bare == widest, limit, _LAST_BYTE_MAX).astype(np.uint8)


def _is_no_value(node: Primitive, column: pa.Array) -> BoolArray | bool:
    """Tell which values are none of their logical type."""
    if node.logical == "uuid":
        matches = pc.match_substring_regex(column, _UUID).fill_null(True)  # noqa: FBT003
        return ~np.asarray(matches)
    lowest, highest = NUMBER_BOUNDS[node.logical or node.kind]
    numbers = _numbers(node, column)
    if lowest <= numbers.min() and numbers.max() <= highest:
        return False
    outside: BoolArray = (numbers < lowest) | (numbers > highest)
    return outside


def _item(node: SchemaNode) -> SchemaNode:
    return node.item if isinstance(node, Nullable) else node


def _column_lengths(node: SchemaNode, column: pa.Array) -> Lengths | int:
    item = _item(node)
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
    offsets = _values(column, _offset_width(column), extra=1)
    return np.diff(offsets).astype(np.int64)


def _offset_width(column: pa.Array) -> str:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return "<i4"
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return "<i8"
    raise TypeError(f"expected a column of strings or binaries, got {kind}")


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
