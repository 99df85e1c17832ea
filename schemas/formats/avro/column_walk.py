"""Read and check the fields of many payloads at once.

``compile_walk`` builds for all rows of a cursor what ``strict_walk.compile_walker``
builds for one payload: a function that moves past a value and refuses what the type
does not allow. The function that ``compile_read`` builds also returns the values, for
types without parts.

Lists and maps are read in rounds. A round takes one item from every row that has one
left. Once few rows are left, the strict walker takes them one by one: a round costs the
same for one row as for a hundred, and a single payload may hold a million items.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tallyweir.schemas.formats.avro.byte_cursor import BoolArray, ByteCursor, I64Array
from tallyweir.schemas.formats.avro.column_decimals import (
    flag_wide_decimals,
    read_decimals,
)
from tallyweir.schemas.formats.avro.column_texts import flag_bad_texts, make_spans
from tallyweir.schemas.formats.avro.strict_walk import (
    MalformedError,
    Walker,
    compile_walker,
)
from tallyweir.schemas.schema_tree import (
    LONG,
    NANOS_PER_MICRO,
    NARROW_DIGITS_MAX,
    NUMBER_BOUNDS,
    Enumeration,
    Fixed,
    Mapping,
    Nullable,
    Primitive,
    Record,
    SchemaNode,
    Sequence,
    Union,
)

Values = npt.NDArray[Any]
Walk = Callable[[ByteCursor], None]

#: At this number of rows, a round takes about as long as walking them one by one.
FEW_ROWS = 32

_NO_CLAIM = -1
#: The bits of a duration's months and days that no ``interval`` has.
_TOO_LONG = np.uint64(0x8000_0000_8000_0000)


@dataclass(slots=True)
class Reading:
    """The values read from one field.

    Attributes:
        values: One entry for each row, or no entries if all rows are null. The entry
            of a null or bad row may be anything. An entry of an enum is the symbol's
            index, of a decimal of up to 38 digits two words, the low one first; of all
            else that is no number it is a span (``make_spans``).
        is_present: Which rows are not null; None if no row is null.
    """

    values: Values
    is_present: BoolArray | None = None


Read = Callable[[ByteCursor], Reading]


def compile_walk(node: SchemaNode) -> Walk:
    """Build the function that moves past values of a type and flags bad rows."""
    match node:
        case Record():
            walk = _walk_record(node)
        case Nullable():
            walk = _walk_nullable(node)
        case Union():
            walk = _walk_union(node)
        case Sequence():
            walk = _walk_blocks(compile_walk(node.item), compile_walker(node))
        case Mapping():
            walk = _walk_map(node)
        case Primitive(kind="string"):
            walk = _walk_text(is_uuid=node.logical == "uuid")
        case Primitive(kind="bytes", logical=None):
            walk = _walk_bytes
        case Fixed(logical="uuid" | None):
            walk = _walk_width(node.size)
        case _:
            walk = _walk_value(node)
    return walk


def compile_read(node: SchemaNode) -> Read:
    """Build the function that reads values of a type, or null.

    Of a type with parts it reads where each value lies. It does not check texts: the
    code that gathers them does (``find_bad_texts``).
    """
    match node:
        case Nullable():
            read = _read_nullable(node)
        case Enumeration():
            read = _read_enumeration(len(node.symbols))
        case Fixed():
            read = _read_fixed(node)
        case Primitive():
            read = _read_primitive(node)
        case _:
            read = _read_nested(node)
    return read


def _read_nested(node: SchemaNode) -> Read:
    walk = compile_walk(node)

    def read(cursor: ByteCursor) -> Reading:
        starts = cursor.at.copy()
        walk(cursor)
        return Reading(make_spans(cursor.content, starts, cursor.at))

    if not isinstance(node, Union) or None not in node.branches:
        return read
    null_index = node.branches.index(None)

    def read_union(cursor: ByteCursor) -> Reading:
        ahead = ByteCursor(cursor.content, cursor.at, cursor.ends)
        is_present = ahead.read_indices(len(node.branches)) != null_index
        return Reading(read(cursor).values, is_present)

    return read_union


def _read_primitive(node: Primitive) -> Read:
    read: Read
    match node.kind:
        case "boolean":
            read = _read_boolean
        case "int" | "long":
            read = _read_whole(node)
        case "float":
            read = _read_float
        case "double":
            read = _read_double
        case _:
            read = _read_sized(node)
    return read


def _read_whole(node: Primitive) -> Read:
    bounds = NUMBER_BOUNDS.get(node.logical or node.kind, LONG)

    def read_int(cursor: ByteCursor) -> Reading:
        return Reading(cursor.read_ints(bounds))

    def read_long(cursor: ByteCursor) -> Reading:
        return Reading(cursor.read_longs(bounds))

    def read_nanos(cursor: ByteCursor) -> Reading:
        values = cursor.read_longs(bounds)
        cursor.is_bad |= values % NANOS_PER_MICRO != 0
        return Reading(values)

    if node.kind == "int":
        return read_int
    return read_nanos if str(node.logical).endswith("-nanos") else read_long


def _read_sized(node: Primitive) -> Read:
    def read(cursor: ByteCursor) -> Reading:
        return Reading(make_spans(cursor.content, *cursor.read_spans()))

    def read_decimal(cursor: ByteCursor) -> Reading:
        return _read_decimal(cursor, *cursor.read_spans(), node.precision)

    return read_decimal if node.logical == "decimal" else read


def _read_boolean(cursor: ByteCursor) -> Reading:
    values = cursor.read_bytes()
    if values.max() > 1:
        cursor.is_bad |= values > 1
    return Reading(values)


def _read_float(cursor: ByteCursor) -> Reading:
    return Reading(cursor.read_words(4).astype(np.uint32).view(np.float32))


def _read_double(cursor: ByteCursor) -> Reading:
    return Reading(cursor.read_words(8).view(np.float64))


def _read_enumeration(symbols: int) -> Read:
    def read(cursor: ByteCursor) -> Reading:
        return Reading(cursor.read_indices(symbols))

    return read


def _read_decimal(
    cursor: ByteCursor, starts: I64Array, stops: I64Array, precision: int
) -> Reading:
    if precision <= NARROW_DIGITS_MAX:
        return Reading(read_decimals(cursor, starts, stops, precision))
    flag_wide_decimals(cursor, starts, stops, precision)
    return Reading(make_spans(cursor.content, starts, stops))


def _read_fixed(node: Fixed) -> Read:
    def read(cursor: ByteCursor) -> Reading:
        starts = cursor.at
        cursor.advance(node.size)
        if node.logical == "decimal":
            return _read_decimal(cursor, starts, cursor.at, node.precision)
        if node.logical == "duration":
            cursor.is_bad |= (cursor.content.words_at(starts) & _TOO_LONG) != 0
        return Reading(make_spans(cursor.content, starts, cursor.at))

    return read


def _read_nullable(node: Nullable) -> Read:
    read_item = compile_read(node.item)
    has_spans = _has_spans(node.item)

    def read(cursor: ByteCursor) -> Reading:
        is_present = cursor.read_indices(2) != node.null_index
        rows = np.flatnonzero(is_present)
        if rows.size == is_present.size:
            return read_item(cursor)
        if rows.size == 0:
            return Reading(np.zeros(0), is_present)
        # A null has an empty span at the row's place, so that spans stay in order.
        nulls = make_spans(cursor.content, cursor.at, cursor.at) if has_spans else None
        part = cursor.select(rows)
        found = read_item(part).values
        cursor.merge(rows, part)
        if nulls is None:
            nulls = np.zeros((is_present.size, *found.shape[1:]), found.dtype)
        nulls[rows] = found
        return Reading(nulls, is_present)

    return read


def _has_spans(node: SchemaNode) -> bool:
    if not isinstance(node, Primitive | Fixed):
        return not isinstance(node, Enumeration)
    if node.logical == "decimal":
        return node.precision > NARROW_DIGITS_MAX
    return isinstance(node, Fixed) or node.kind in {"string", "bytes"}


def _walk_value(node: SchemaNode) -> Walk:
    """Read a value and drop it, for types that are checked by reading them."""
    match node:
        case Primitive(kind="float"):
            return _walk_width(4)
        case Primitive(kind="double"):
            return _walk_width(8)
    read = compile_read(node)

    def walk(cursor: ByteCursor) -> None:
        read(cursor)

    return walk


def _walk_width(width: int) -> Walk:
    def walk(cursor: ByteCursor) -> None:
        cursor.advance(width)

    return walk


def _walk_bytes(cursor: ByteCursor) -> None:
    cursor.read_spans()


def _walk_text(*, is_uuid: bool) -> Walk:
    def walk(cursor: ByteCursor) -> None:
        starts, stops = cursor.read_spans()
        flag_bad_texts(cursor, starts, stops, is_uuid=is_uuid)

    return walk


def _walk_record(node: Record) -> Walk:
    walks = tuple(compile_walk(field.node) for field in node.fields)

    def walk(cursor: ByteCursor) -> None:
        for walk_field in walks:
            walk_field(cursor)

    return walk


def _walk_nullable(node: Nullable) -> Walk:
    walk_item = compile_walk(node.item)

    def walk(cursor: ByteCursor) -> None:
        is_present = cursor.read_indices(2) != node.null_index
        rows = np.flatnonzero(is_present)
        if rows.size == is_present.size:
            walk_item(cursor)
        elif rows.size:
            part = cursor.select(rows)
            walk_item(part)
            cursor.merge(rows, part)

    return walk


def _walk_union(node: Union) -> Walk:
    walks = [None if one is None else compile_walk(one) for one in node.branches]

    def walk(cursor: ByteCursor) -> None:
        indices = cursor.read_indices(len(walks))
        for index, walk_branch in enumerate(walks):
            rows = np.flatnonzero(indices == index)
            if walk_branch is not None and rows.size:
                part = cursor.select(rows)
                walk_branch(part)
                cursor.merge(rows, part)

    return walk


def _walk_map(node: Mapping) -> Walk:
    walk_key = _walk_text(is_uuid=False)
    walk_value = compile_walk(node.item)

    def walk_entry(cursor: ByteCursor) -> None:
        walk_key(cursor)
        walk_value(cursor)

    return _walk_blocks(walk_entry, compile_walker(node))


def _walk_blocks(walk_item: Walk, walk_strictly: Walker) -> Walk:
    """Walk blocks of items, each with its count, up to the block with count zero.

    Args:
        walk_item: Walks one item of each row.
        walk_strictly: Walks all blocks of one row.
    """

    def walk(cursor: ByteCursor) -> None:
        starts = cursor.at.copy()
        rows = np.flatnonzero(~cursor.is_bad)
        left = np.zeros(rows.size, dtype=np.int64)
        claims = np.full(rows.size, _NO_CLAIM, dtype=np.int64)
        while rows.size > FEW_ROWS:
            part = cursor.select(rows)
            _open_blocks(part, left, claims)
            going = (left > 0) & ~part.is_bad
            if not going.all():
                cursor.merge(rows, part)
                rows, left, claims = rows[going], left[going], claims[going]
                if rows.size <= FEW_ROWS:
                    break
                part = part.select(np.flatnonzero(going))
            walk_item(part)
            left -= 1
            part.is_bad |= (left == 0) & (claims != _NO_CLAIM) & (part.at != claims)
            cursor.merge(rows, part)
            rows, left, claims = _without_bad(part, rows, left, claims)
        for row in rows.tolist():
            _walk_one(cursor, row, int(starts[row]), walk_strictly)

    return walk


def _without_bad(
    part: ByteCursor, *arrays: I64Array
) -> tuple[I64Array, I64Array, I64Array]:
    if not part.is_bad.any():
        rows, left, claims = arrays
    else:
        rows, left, claims = (array[~part.is_bad] for array in arrays)
    return rows, left, claims


def _open_blocks(part: ByteCursor, left: I64Array, claims: I64Array) -> None:
    """Read the head of the next block for each row that has no item left.

    Args:
        part: The rows, none of them bad.
        left: The number of items left in each row's block; changed in place. It stays
            zero for a row without a further block.
        claims: Where each row's block claims to end; changed in place.
    """
    rows = np.flatnonzero(left == 0)
    if rows.size == 0:
        return
    heads = part.select(rows)
    counts = heads.read_longs(LONG)
    ends = np.full(rows.size, _NO_CLAIM, dtype=np.int64)
    sized = np.flatnonzero(counts < 0)
    if sized.size:
        sizes = heads.select(sized)
        first, ends[sized] = sizes.read_spans()
        sizes.at = first
        heads.merge(sized, sizes)
        counts[sized] = -counts[sized]
    # Every item takes at least one byte, so a count above the bytes left is bad. The
    # lowest number has no opposite and is still negative here.
    heads.is_bad |= (counts > heads.ends - heads.at) | (counts < 0)
    part.merge(rows, heads)
    left[rows] = counts
    claims[rows] = ends


def _walk_one(cursor: ByteCursor, row: int, start: int, walk_strictly: Walker) -> None:
    """Walk all blocks of one row from their start."""
    payload, place = cursor.content.payload_up_to(start, int(cursor.ends[row]))
    try:
        end = walk_strictly(payload, place)
    except MalformedError:
        cursor.is_bad[row] = True
    else:
        cursor.at[row] = start + end - place
