"""Walk an Avro body without trusting it: check every byte against the schema.

Decoders are lenient: an enum index of -1 becomes the last symbol, a number of ten
thousand bytes is accepted, and text need not be UTF-8. A walker accepts only what the
Avro specification describes:

- numbers take at most ten bytes (five for an int) and fit their type. A longer
  form of a small number is accepted, because Avro allows it;
- lengths, counts and indices are in range; a block of items has the size it claims;
- text is UTF-8, Python can read a UUID, a boolean is 0 or 1, and a decimal fits its
  precision;
- dates and instants lie in the years 0001 to 9999, Python's range; a timestamp in
  nanoseconds is a whole number of microseconds;
- a time lies within a day, and months and days of a duration fit an ``interval``.

A walker ends where the body's last field ends; the caller checks what follows.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

from tallyweir.schemas.schema_tree import (
    INT,
    NANOS_PER_MICRO,
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

INT_BYTES_MAX = 5
LONG_BYTES_MAX = 10

Walker = Callable[[bytes, int], int]
"""Takes the payload and where a value starts; returns where it ends."""


class MalformedError(Exception):
    """The bytes at a place are not what the schema says."""


def compile_walker(node: SchemaNode, at: str = "") -> Walker:
    """Build the walker of a type; ``at`` is the field's path in messages."""
    match node:
        case Record():
            walker = _walk_record(node, at)
        case Nullable():
            walker = _walk_nullable(node, at)
        case Union():
            walker = _walk_union(node, at)
        case Sequence():
            walker = _walk_blocks(compile_walker(node.item, f"{at}[]"), at)
        case Mapping():
            walker = _walk_map(node, at)
        case Enumeration():
            walker = _walk_number((0, len(node.symbols) - 1), INT_BYTES_MAX, at)
        case Fixed():
            walker = _walk_fixed(node, at)
        case Primitive():
            walker = _walk_primitive(node, at)
    return walker


def _walk_primitive(node: Primitive, at: str) -> Walker:
    match node.kind:
        case "int":
            walker = _walk_number(
                NUMBER_BOUNDS[node.logical or "int"], INT_BYTES_MAX, at
            )
        case "long":
            walker = _walk_number(
                NUMBER_BOUNDS[node.logical or "long"], LONG_BYTES_MAX, at
            )
            if str(node.logical).endswith("-nanos"):
                walker = _walk_micros(walker, at)
        case "float":
            walker = _walk_width(4, at)
        case "double":
            walker = _walk_width(8, at)
        case "boolean":
            walker = _walk_boolean(at)
        case "string":
            walker = _walk_uuid(at) if node.logical == "uuid" else _walk_text(at)
        case _:
            walker = _walk_bytes(node, at)
    return walker


def _malformed(at: str, what: str) -> MalformedError:
    return MalformedError(f"field {at}: {what}")


def _ended(payload: bytes, at: str, position: int) -> MalformedError:
    size = len(payload)
    needed = f", {position:,} needed" if position > size else ""
    return _malformed(at, f"stream ended at byte {size} of {size}{needed}")


def _read_number(
    payload: bytes, position: int, bytes_max: int, at: str
) -> tuple[int, int]:
    """Read one zigzag variable-length number; return it and where it ends."""
    raw = shift = 0
    for end in range(position, position + bytes_max):
        if end >= len(payload):
            raise _ended(payload, at, end)
        byte = payload[end]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 (the high bit says that more follows)
            return (raw >> 1) ^ -(raw & 1), end + 1
        shift += 7
    raise _malformed(at, f"the number at byte {position} is over {bytes_max} bytes")


def _read_size(payload: bytes, position: int, at: str) -> tuple[int, int]:
    size, start = _read_number(payload, position, LONG_BYTES_MAX, at)
    if size < 0:
        raise _malformed(at, f"the length at byte {position} is {size}")
    if start + size > len(payload):
        raise _ended(payload, at, start + size)
    return start, start + size


def _walk_number(bounds: tuple[int, int], bytes_max: int, at: str) -> Walker:
    lowest, highest = bounds

    def walk(payload: bytes, position: int) -> int:
        value, end = _read_number(payload, position, bytes_max, at)
        if not lowest <= value <= highest:
            raise _malformed(
                at,
                f"{value} at byte {position} is not within {lowest} and {highest}",
            )
        return end

    return walk


def _walk_micros(walk_number: Walker, at: str) -> Walker:
    def walk(payload: bytes, position: int) -> int:
        end = walk_number(payload, position)
        value, _ = _read_number(payload, position, LONG_BYTES_MAX, at)
        if value % NANOS_PER_MICRO:
            raise _malformed(
                at, f"{value} ns at byte {position} are no whole number of microseconds"
            )
        return end

    return walk


def _walk_width(width: int, at: str) -> Walker:
    def walk(payload: bytes, position: int) -> int:
        end = position + width
        if end > len(payload):
            raise _ended(payload, at, end)
        return end

    return walk


def _walk_boolean(at: str) -> Walker:
    def walk(payload: bytes, position: int) -> int:
        if position >= len(payload):
            raise _ended(payload, at, position)
        if payload[position] > 1:
            raise _malformed(
                at, f"the boolean at byte {position} is {payload[position]}"
            )
        return position + 1

    return walk


def _walk_text(at: str) -> Walker:
    def walk(payload: bytes, position: int) -> int:
        start, end = _read_size(payload, position, at)
        try:
            payload[start:end].decode()
        except UnicodeDecodeError as exc:
            raise _malformed(
                at, f"the text is no UTF-8 at byte {start + exc.start}"
            ) from exc
        return end

    return walk


def _walk_uuid(at: str) -> Walker:
    walk_text = _walk_text(at)

    def walk(payload: bytes, position: int) -> int:
        end = walk_text(payload, position)
        start, _ = _read_size(payload, position, at)
        try:
            uuid.UUID(payload[start:end].decode())
        except ValueError as exc:
            raise _malformed(at, f"the text at byte {start} is no UUID") from exc
        return end

    return walk


def _walk_bytes(node: Primitive, at: str) -> Walker:
    def walk(payload: bytes, position: int) -> int:
        return _read_size(payload, position, at)[1]

    def walk_decimal(payload: bytes, position: int) -> int:
        start, end = _read_size(payload, position, at)
        _require_digits(payload[start:end], node.precision, at)
        return end

    return walk_decimal if node.logical == "decimal" else walk


def _walk_fixed(node: Fixed, at: str) -> Walker:
    walk = _walk_width(node.size, at)

    def walk_decimal(payload: bytes, position: int) -> int:
        end = walk(payload, position)
        _require_digits(payload[position:end], node.precision, at)
        return end

    def walk_duration(payload: bytes, position: int) -> int:
        end = walk(payload, position)
        for unit, start in (("months", position), ("days", position + 4)):
            count = int.from_bytes(payload[start : start + 4], "little")
            if count > INT[1]:
                raise _malformed(at, f"{count} {unit} are more than {INT[1]}")
        return end

    match node.logical:
        case "decimal":
            return walk_decimal
        case "duration":
            return walk_duration
        case _:
            return walk


def _require_digits(unscaled: bytes, precision: int, at: str) -> None:
    if not unscaled:
        raise _malformed(at, "the decimal has no bytes")
    if abs(int.from_bytes(unscaled, signed=True)) >= 10**precision:
        raise _malformed(at, f"the decimal has more than {precision} digits")


def _walk_record(node: Record, at: str) -> Walker:
    walkers = tuple(
        compile_walker(field.node, f"{at}.{field.name}" if at else field.name)
        for field in node.fields
    )

    def walk(payload: bytes, position: int) -> int:
        for walker in walkers:
            position = walker(payload, position)
        return position

    return walk


def _walk_nullable(node: Nullable, at: str) -> Walker:
    walk_index = _walk_number((0, 1), INT_BYTES_MAX, at)
    walk_item = compile_walker(node.item, at)

    def walk(payload: bytes, position: int) -> int:
        end = walk_index(payload, position)
        index, _ = _read_number(payload, position, INT_BYTES_MAX, at)
        return end if index == node.null_index else walk_item(payload, end)

    return walk


def _walk_union(node: Union, at: str) -> Walker:
    walk_index = _walk_number((0, len(node.branches) - 1), INT_BYTES_MAX, at)
    walkers = [
        None if one is None else compile_walker(one, at) for one in node.branches
    ]

    def walk(payload: bytes, position: int) -> int:
        end = walk_index(payload, position)
        index, _ = _read_number(payload, position, INT_BYTES_MAX, at)
        walk_branch = walkers[index]
        return end if walk_branch is None else walk_branch(payload, end)

    return walk


def _walk_map(node: Mapping, at: str) -> Walker:
    walk_key = _walk_text(at)
    walk_value = compile_walker(node.item, f"{at}{{}}")

    def walk_entry(payload: bytes, position: int) -> int:
        return walk_value(payload, walk_key(payload, position))

    return _walk_blocks(walk_entry, at)


def _walk_blocks(walk_item: Walker, at: str) -> Walker:
    """Walk blocks of items, each with its count, up to the block with count zero.

    Every item takes at least one byte (``safety``), so the payload's length bounds the
    work, whatever the counts claim.
    """

    def walk(payload: bytes, position: int) -> int:
        while True:
            count, position = _read_number(payload, position, LONG_BYTES_MAX, at)
            claimed_end = None
            if count < 0:
                count = -count
                position, claimed_end = _read_size(payload, position, at)
            if count == 0:
                return position
            for _ in range(count):
                position = walk_item(payload, position)
            if claimed_end is not None and position != claimed_end:
                raise _malformed(
                    at, f"a block ends at byte {position}, not {claimed_end}"
                )

    return walk
