"""Keyed hashes of whole Arrow columns: fingerprints of IDs, and hashes of payloads.

A fingerprint is SipHash-2-4 with 128 bits of output, keyed by the 16-byte secret of
the installation. So an attacker who chooses IDs can neither make two of them collide
nor aim them at one place of the catalog. ``docs/adr/0002`` explains why a weaker hash
does not suffice; ``id_hash`` describes how the parts of an ID are encoded. A
fingerprint is a pair of uint64 ``(hi, lo)``: the two output words of SipHash, in the
order in which the algorithm emits them. Each is stored big-endian, so that 16 stored
bytes sort exactly as the pair does.

A payload's hash tells a repeat of an event from a conflict. It is not SipHash but a sum
of products, which numpy computes for a whole column at a fraction of the cost: the
multilinear hash of Lemire and Kaser ("Strongly universal string hashing is fast",
2014). A payload's header and words are read in lanes of 32 bits. Each lane is
multiplied by its own secret of 64 bits; the upper half of the sum of the products,
modulo 2**64, counts. Two of these sums make a hash. For any two payloads that differ,
the share of keys under which both have the same hash is 2**-64.

That holds for payloads that were chosen without knowing any hash. Hashes never leave
the home database and the tasks. An attacker who has seen many could solve for the
lanes' secrets and then forge a repeat, but would learn nothing about the installation's
key, which fingerprints depend on. ``docs/adr/0002`` weighs that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tallyweir.sinks.seen_ids.id_hash import (
    WORD_BYTES,
    Part,
    PartBlock,
    Tag,
    cut_block,
    hash_parts,
)
from tallyweir.sinks.seen_ids.ordering import HALF_WORD, I64Array, U64Array

_INTEGER_BYTES = 8


def fingerprint(columns: Sequence[pa.Array], key: bytes) -> U64Array:
    """Fingerprint the ID that each row of ``columns`` holds.

    Equal IDs have equal fingerprints in every batch, process and release. Only the key
    makes it possible to find different IDs with equal fingerprints.

    Args:
        columns: The parts of the ID: arrays of one length, of text, bytes, integers
            of 32 or 64 bits, or decimals without a fraction. They may be slices. No
            row may be null: the caller decides what a missing ID means.
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
    if pa.types.is_decimal(column.type) and column.type.scale == 0:
        # An unsigned number of 64 bits is filed under its digits.
        column = column.cast(pa.string())
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


#: Longer payloads are digested first: BLAKE2b then costs less per byte.
LONG_PAYLOAD_BYTES = 2048
#: Limit on the words of a block: they and their lanes stay in the second-level cache.
_BLOCK_WORDS = 1 << 15
_BLOCK_ROWS_MAX = 8192

_SUMS = 2
_LANE_BYTES = 4
#: Lanes before a payload's own: one for the constant, and two for the header.
_LANES_BEFORE = 3
_LANES_MAX = _LANES_BEFORE + LONG_PAYLOAD_BYTES // _LANE_BYTES
_UPPER_HALF = np.uint64(0xFFFFFFFF00000000)


def payload_hashes(values: pa.BinaryArray, key: bytes) -> U64Array:
    """Hash each payload to 64 bits, to tell a repeat from a conflict.

    A hash is never 0: zero stands for "no hash was kept" in the catalog.

    Args:
        values: The payloads; no row may be null.
        key: The secret of the installation, 16 bytes.

    Returns:
        Array of shape (rows,).
    """
    part = part_of(values)
    hashes = np.empty(len(part), dtype=np.uint64)
    secrets = _lane_secrets(key)
    for begin, end in _blocks(part):
        block = cut_block(part, begin, end, key, long_bytes=LONG_PAYLOAD_BYTES)
        for rows in _of_like_width(block):
            chosen = block if rows is None else block.take(rows)
            where = slice(begin, end) if rows is None else begin + rows
            hashes[where] = _hash(chosen, secrets)
    return np.maximum(hashes, np.uint64(1), out=hashes)


def _blocks(part: Part) -> Iterator[tuple[int, int]]:
    """Cut the rows into blocks of about equal numbers of words, by the mean length."""
    rows = len(part)
    if not rows:
        return
    mean_bytes = int(part.offsets[-1] - part.offsets[0]) // rows
    step = min(_BLOCK_WORDS // (1 + mean_bytes // WORD_BYTES) + 1, _BLOCK_ROWS_MAX)
    for begin in range(0, rows, step):
        yield begin, min(begin + step, rows)


def _of_like_width(block: PartBlock) -> Iterator[I64Array | None]:
    """Group a block's rows by the power of two that bounds their number of words.

    One long payload must not make all others as wide as itself. None stands for all
    rows, if their lengths are alike.
    """
    classes = np.frexp(block.count_words().astype(np.float64))[1]
    if classes.max() - classes.min() <= 1:
        yield None
        return
    for width in np.unique(classes).tolist():
        yield np.flatnonzero(classes == width)


def _hash(block: PartBlock, secrets: U64Array) -> U64Array:
    words = block.read().view("<u4")
    lanes = np.empty((len(words), _LANES_BEFORE + words.shape[1]), dtype=np.uint64)
    lanes[:, 0] = 1
    lanes[:, 1] = block.headers & ~_UPPER_HALF
    lanes[:, 2] = block.headers >> HALF_WORD
    lanes[:, _LANES_BEFORE:] = words
    # Products and sums of unsigned integers wrap, which is the modulus.
    sums = lanes @ secrets[: lanes.shape[1]]
    hashes: U64Array = (sums[:, 0] & _UPPER_HALF) | (sums[:, 1] >> HALF_WORD)
    return hashes


@lru_cache(maxsize=4)
def _lane_secrets(key: bytes) -> U64Array:
    """Derive the secrets of all lanes: shape (lanes, 2)."""
    stream = hashlib.shake_256(b"tallyweir payload hash" + key)
    drawn = stream.digest(_LANES_MAX * _SUMS * WORD_BYTES)
    secrets = np.frombuffer(drawn, dtype="<u8").astype(np.uint64).reshape(-1, _SUMS)
    secrets.flags.writeable = False
    return secrets
