"""Decode a slice of a batch: its proven rows to columns, and which rows those are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tallyweir.schemas.formats.decoded_columns import DecodedEvents
from tallyweir.schemas.formats.json.json_assembly import (
    Assembly,
    joined_bytes,
    take_spans,
)
from tallyweir.schemas.formats.json.json_codec import JsonCodec, unnamed_path
from tallyweir.schemas.formats.json.json_leaves import Member, Side
from tallyweir.schemas.formats.json.json_objects import ObjectMember
from tallyweir.schemas.formats.json.json_scan import BoolArray, Cursor, I64Array, Scan

#: Longer payloads are read alone.
PAYLOAD_BYTES_MAX = 1 << 14


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvenRows:
    """The rows of a slice that are surely events.

    Attributes:
        rows: The rows, in ascending order.
        events: What they hold; it has these rows only.
    """

    rows: I64Array
    events: DecodedEvents


def decode_slice(
    scan: Scan, codec: JsonCodec, types: Mapping[str, pa.DataType]
) -> ProvenRows:
    """Decode the rows of a slice as far as they can be proven to be events."""
    side = Side(scan)
    root = ObjectMember(scan, side, codec.root, 0, refuses=codec.unknown == "refuse")
    rows = _read_rows(scan, root)
    for member in _leaves(root):
        if member.leaf is not None and member.leaf.field.is_required:
            has_value = member.is_value[scan.where(rows)]
            rows = rows if has_value.all() else rows[has_value]
    canonical = Assembly(side, scan, rows, only_unnamed=False)
    canonical.add(root)
    rest = Assembly(side, scan, rows, only_unnamed=True)
    has_rest = rest.add(root) if codec.rest in types else None
    canonical.close()
    rest.close()
    data, size = joined_bytes(scan, side)
    columns = {
        member.leaf.field.column: _column(member, scan.where(rows), kind, data, size)
        for member in _leaves(root)
        if member.leaf is not None
        and (kind := types.get(member.leaf.field.column)) is not None
    }
    if codec.rest is not None and has_rest is not None:
        texts = rest.join(data, size).view(pa.string())
        columns[codec.rest] = _with_nulls(texts, has_rest)
    events = DecodedEvents(
        columns=columns,
        is_event=np.ones(rows.size, np.bool_),
        canonical=canonical.join(data, size),
        unnamed=_count_unnamed(root, scan.where(rows), ()),
    )
    return ProvenRows(rows=rows, events=events)


def _read_rows(scan: Scan, root: ObjectMember) -> I64Array:
    is_short = scan.ends - scan.starts <= PAYLOAD_BYTES_MAX
    is_readable = ~scan.is_doubtful & is_short
    rows = scan.rows if is_readable.all() else np.flatnonzero(is_readable)
    starts = scan.starts[rows]
    cursor = Cursor(scan, rows, starts, scan.quotes.searchsorted(starts))
    cursor.skip_spaces()
    cursor = root.read_object(cursor)
    cursor.skip_spaces_before_end()
    cursor = cursor.keep(cursor.at == scan.ends[cursor.where])
    return cursor.rows if cursor.rows is scan.rows else np.sort(cursor.rows)


def _leaves(node: ObjectMember) -> list[Member]:
    found: list[Member] = []
    for member in node.members.values():
        found += _leaves(member) if isinstance(member, ObjectMember) else [member]
    return found


def _count_unnamed(
    node: ObjectMember, rows: I64Array | slice, path: tuple[str, ...]
) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name, member in node.members.items():
        inner = (*path, name)
        if isinstance(member, ObjectMember):
            counts |= _count_unnamed(member, rows, inner)
        elif not node.is_named(name):
            count = int(np.count_nonzero(member.is_present[rows]))
            if count:
                counts[unnamed_path(inner)] = count
    return counts


def _column(
    member: Member,
    rows: I64Array | slice,
    kind: pa.DataType,
    data: pa.Buffer,
    size: int,
) -> pa.Array:
    """Make the column of a field."""
    values, is_value = member.values[rows], member.is_value[rows]
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        spans = np.empty((values.size, 2), np.int32)
        spans[:, 0], spans[:, 1] = values, member.others[rows]
        if not is_value.all():
            spans[~is_value] = 0
        order = np.arange(values.size, dtype=np.int32)
        return _with_nulls(take_spans(data, size, spans, order).view(kind), is_value)
    made: npt.NDArray[Any]
    if pa.types.is_decimal(kind):
        made = np.stack([values, member.others[rows]], axis=1)
    elif pa.types.is_boolean(kind):
        made = np.packbits(values.astype(np.bool_), bitorder="little")
    else:
        prefix = "f" if pa.types.is_floating(kind) else "i"
        made = values.astype(f"{prefix}{kind.bit_width // 8}")
    column = pa.Array.from_buffers(kind, values.size, [None, pa.py_buffer(made)])
    return _with_nulls(column, is_value)


def _with_nulls(column: pa.Array, is_value: BoolArray) -> pa.Array:
    if is_value.all():
        return column
    buffers = column.buffers()
    buffers[0] = pa.py_buffer(np.packbits(is_value, bitorder="little"))
    return pa.Array.from_buffers(column.type, len(column), buffers)
