"""Keyed fingerprints of producer IDs, computed over whole Arrow columns.

A fingerprint is SipHash-2-4 with 128 bits of output, keyed by the 16-byte secret of
the installation. So an attacker who chooses IDs can neither make two of them collide
nor aim them at one place of the catalog. ``docs/adr/0002`` explains why a weaker hash
does not suffice; ``id_hash`` describes how the parts of an ID are encoded.

A fingerprint is a pair of uint64 ``(hi, lo)``: the two output words of SipHash, in the
order in which the algorithm emits them. Each is stored big-endian, so that 16 stored
bytes sort exactly as the pair does.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tallyweir.sinks.seen_ids.id_hash import hash_parts
from tallyweir.sinks.seen_ids.part_words import Part, Tag, U64Array

_INTEGER_BYTES = 8


def fingerprint(columns: Sequence[pa.Array], key: bytes) -> U64Array:
    """Fingerprint the ID that each row of ``columns`` holds.

    Equal IDs have equal fingerprints in every batch, process and release. Only the key
    makes it possible to find different IDs with equal fingerprints.

    Args:
        columns: The parts of the ID: arrays of one length, of text, bytes or integers
            of 32 or 64 bits. They may be slices. No row may be null: the caller
            decides what a missing ID means.
        key: The secret of the installation, 16 bytes.

    Returns:
        Array of shape (rows, 2), the pairs ``(hi, lo)``.

    Raises:
        TypeError: A column has a type that no ID can have.
    """
    return hash_parts([part_of(column) for column in columns], key)


def part_of(column: pa.Array) -> Part:
    """Read a column as one part of an ID.

    Raises:
        TypeError: It has a type that no ID can have.
    """
    assert column.null_count == 0, "an event without an ID has no fingerprint"
    kind = column.type
    if pa.types.is_integer(kind) and pa.types.is_signed_integer(kind):
        return _fixed_part(Tag.INTEGER, column.cast(pa.int64()), _INTEGER_BYTES)
    if pa.types.is_fixed_size_binary(kind):
        return _fixed_part(Tag.BYTES, column, kind.byte_width)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        tag = Tag.TEXT
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        tag = Tag.BYTES
    else:
        raise TypeError(f"an ID cannot be of type {kind}")
    large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    _, offsets, data = column.buffers()
    if len(column) == 0:
        return Part(tag=tag, data=_bytes_of(None), offsets=np.zeros(1, dtype=np.int64))
    stored = np.frombuffer(offsets, dtype=np.int64 if large else np.int32)
    wanted = stored[column.offset : column.offset + len(column) + 1]
    return Part(tag=tag, data=_bytes_of(data), offsets=wanted.astype(np.int64))


def _fixed_part(tag: Tag, column: pa.Array, width: int) -> Part:
    rows = np.arange(len(column) + 1, dtype=np.int64)
    data = _bytes_of(column.buffers()[1])
    return Part(tag=tag, data=data, offsets=(rows + column.offset) * width)


def _bytes_of(buffer: pa.Buffer | None) -> npt.NDArray[np.uint8]:
    # Arrow may leave out the buffer of a column that holds no bytes at all.
    return np.frombuffer(b"" if buffer is None else buffer, dtype=np.uint8)
