"""SipHash-2-4 over many IDs at once, and the encoding of their parts.

What is hashed is an injective encoding of the parts of an ID: each part is one
little-endian word ``tag | length << 8`` and then its bytes, padded with zeros to whole
words. The tag keeps the text ``"5"`` apart from the number 5, the length keeps
``("ab", "c")`` apart from ``("a", "bc")``. Numbers are encoded by value: a field that
is promoted from 32 to 64 bits keeps the fingerprints of its IDs. A part longer than
``LONG_PART_BYTES`` is replaced, under a tag of its own, by its keyed BLAKE2b digest:
one long ID must not make the word loop below run thousands of times for a whole block.

The work is done in blocks of rows whose state stays in the second-level cache; Python
loops over the words of the longest row, never over the rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

KEY_BYTES = 16
FINGERPRINT_BYTES = 16
LONG_PART_BYTES = 512
BLOCK_ROWS = 8192

U64Array = npt.NDArray[np.uint64]
I64Array = npt.NDArray[np.int64]

_WORD = 8
_DIGEST_BYTES = 32
_TAG_LONG = 0x80

_IV = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
_DOMAIN_128, _SECOND_WORD, _DOMAIN_64 = 0xEE, 0xDD, 0xFF

_KEEP_BYTES = np.array([(1 << 8 * n) - 1 for n in range(_WORD + 1)], dtype=np.uint64)


class Tag(IntEnum):
    """The kind of a part, which is hashed with it."""

    TEXT = 1
    BYTES = 2
    INTEGER = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of many IDs; that of row ``i``: ``data[offsets[i]:offsets[i + 1]]``."""

    tag: int
    data: npt.NDArray[np.uint8]
    offsets: I64Array


def fingerprint_of(values: Sequence[str | int], key: bytes) -> bytes:
    """Fingerprint one ID; 16 bytes, equal to what ``fingerprint`` gives for a column.

    Args:
        values: The parts of the ID; a number is one of 64 bits.
        key: The secret of the installation, 16 bytes.
    """
    return to_bytes(hash_parts([_part_of(value) for value in values], key, words_out=2))


def hash_parts(parts: Sequence[Part], key: bytes, *, words_out: int) -> U64Array:
    """Hash the ID of each row.

    Args:
        parts: The parts of the IDs, at least one, all of the same number of rows.
        key: The secret of the installation, 16 bytes.
        words_out: 2 for a hash of 128 bits, 1 for one of 64.

    Returns:
        Array of shape (rows, words_out).
    """
    assert len(key) == KEY_BYTES, "the installation's key has 16 bytes"
    assert parts, "an ID has at least one part"
    rows = len(parts[0].offsets) - 1
    assert all(len(part.offsets) == rows + 1 for part in parts)
    hashes = np.empty((rows, words_out), dtype=np.uint64)
    for begin in range(0, rows, BLOCK_ROWS):
        end = min(begin + BLOCK_ROWS, rows)
        blocks = [_part_block(part, begin, end, key) for part in parts]
        _hash_block(blocks, key, hashes[begin:end])
    return hashes


def to_bytes(fingerprints: U64Array) -> bytes:
    """Write fingerprints as 16 bytes each, which sort as the pairs do."""
    return fingerprints.astype(">u8").tobytes()


def from_bytes(stored: bytes | memoryview) -> U64Array:
    """Read back what ``to_bytes`` wrote.

    Raises:
        ValueError: The length is no multiple of 16 bytes.
    """
    return np.frombuffer(stored, dtype=">u8").reshape(-1, 2).astype(np.uint64)


def _part_of(value: str | int) -> Part:
    if isinstance(value, int):
        tag, data = Tag.INTEGER, value.to_bytes(_WORD, "little", signed=True)
    else:
        tag, data = Tag.TEXT, value.encode()
    return Part(
        tag=tag,
        data=np.frombuffer(data, dtype=np.uint8),
        offsets=np.array([0, len(data)], dtype=np.int64),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _PartBlock:
    """Some rows of a part, long values replaced, readable one word past the end."""

    headers: U64Array
    data: npt.NDArray[np.uint8]
    starts: I64Array
    lengths: I64Array

    def in_order(self, order: I64Array) -> _PartBlock:
        return _PartBlock(
            headers=self.headers[order],
            data=self.data,
            starts=self.starts[order],
            lengths=self.lengths[order],
        )


def _part_block(part: Part, begin: int, end: int, key: bytes) -> _PartBlock:
    offsets = part.offsets[begin : end + 1]
    data = part.data[offsets[0] : offsets[-1]]
    starts = offsets[:-1] - offsets[0]
    lengths = np.diff(offsets)
    headers = (lengths.astype(np.uint64) << np.uint64(8)) | np.uint64(part.tag)
    digests = bytearray()
    long_rows = np.flatnonzero(lengths > LONG_PART_BYTES)
    for row in long_rows:
        value = data[starts[row] : starts[row] + lengths[row]].tobytes()
        digests += hashlib.blake2b(value, digest_size=_DIGEST_BYTES, key=key).digest()
    if long_rows.size:
        headers[long_rows] |= np.uint64(_TAG_LONG)
        starts[long_rows] = data.size + _DIGEST_BYTES * np.arange(long_rows.size)
        lengths[long_rows] = _DIGEST_BYTES
    slack = np.zeros(_WORD, dtype=np.uint8)
    data = np.concatenate([data, np.frombuffer(digests, dtype=np.uint8), slack])
    return _PartBlock(headers=headers, data=data, starts=starts, lengths=lengths)


def _hash_block(parts: list[_PartBlock], key: bytes, hashes: U64Array) -> None:
    """Hash the rows of one block into ``hashes``.

    The rows with the most words come first, so that the rows which still have a word
    at position ``n`` are always a prefix of the block.
    """
    totals = sum(_words_of(part) for part in parts)
    assert isinstance(totals, np.ndarray)
    order: I64Array | None = None
    if totals.min() != totals.max():
        order = np.argsort(-totals, kind="stable")
        parts = [part.in_order(order) for part in parts]
        totals = totals[order]
    active = len(totals) - np.cumsum(np.bincount(totals))[:-1]
    state = _State(key, len(totals), double=hashes.shape[1] > 1)
    for count, words in zip(active, _words(parts, active), strict=True):
        state.absorb(words, int(count))
    # The words are whole, so the last one of SipHash holds nothing but the length.
    state.absorb((totals.astype(np.uint64) * np.uint64(_WORD)) << np.uint64(56))
    finished = hashes if order is None else np.empty_like(hashes)
    state.finish(finished)
    if order is not None:
        hashes[order] = finished


def _words_of(part: _PartBlock) -> I64Array:
    words: I64Array = 1 + (part.lengths + (_WORD - 1)) // _WORD
    return words


def _words(parts: list[_PartBlock], active: I64Array) -> Iterator[U64Array]:
    """Yield the encoded rows as words by position, only of the rows that have one."""
    rows = len(parts[0].headers)
    encoded = np.zeros((len(active), rows), dtype=np.uint64)
    position: I64Array = np.zeros(rows, dtype=np.int64)
    for part in parts:
        _encode(part, position, encoded)
        position = position + _words_of(part)
    for at, count in enumerate(active):
        yield encoded[at, :count]


def _encode(part: _PartBlock, position: I64Array, encoded: U64Array) -> None:
    aligned = bool((position == position[0]).all())
    unaligned_words = np.ndarray(
        (part.data.size - _WORD + 1,), dtype="<u8", buffer=part.data, strides=(1,)
    )
    rows: I64Array = np.arange(len(position))
    if aligned:
        encoded[position[0]] = part.headers
    else:
        encoded[position, rows] = part.headers
    for at in range(int(part.lengths.max() + _WORD - 1) // _WORD):
        rest = part.lengths - at * _WORD
        if rest.min() <= 0:
            rows = np.flatnonzero(rest > 0)
            rest = rest[rows]
        words = unaligned_words[part.starts[rows] + at * _WORD]
        if rest.min() < _WORD:
            words &= _KEEP_BYTES[np.minimum(rest, _WORD)]
        if aligned and len(rows) == len(position):
            encoded[position[0] + 1 + at] = words
        else:
            encoded[position[rows] + 1 + at, rows] = words


class _State:
    """The four words of SipHash for each row of a block."""

    __slots__ = ("_double", "_scratch", "_v")

    def __init__(self, key: bytes, rows: int, *, double: bool) -> None:
        halves = (int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little"))
        self._v = np.empty((4, rows), dtype=np.uint64)
        for at, constant in enumerate(_IV):
            self._v[at] = constant ^ halves[at % 2]
        self._scratch = np.empty(rows, dtype=np.uint64)
        self._double = double
        if double:
            self._v[1] ^= np.uint64(_DOMAIN_128)

    def absorb(self, words: U64Array, count: int | None = None) -> None:
        """Mix one word into each of the first ``count`` rows."""
        v0, v1, v2, v3 = self._v[:, :count]
        scratch = self._scratch[:count]
        np.bitwise_xor(v3, words, out=v3)
        for _ in range(2):
            _round(v0, v1, v2, v3, scratch)
        np.bitwise_xor(v0, words, out=v0)

    def finish(self, hashes: U64Array) -> None:
        v0, v1, v2, v3 = self._v
        v2 ^= np.uint64(_DOMAIN_128 if self._double else _DOMAIN_64)
        for at in range(hashes.shape[1]):
            if at == 1:
                v1 ^= np.uint64(_SECOND_WORD)
            for _ in range(4):
                _round(v0, v1, v2, v3, self._scratch)
            hashes[:, at] = v0 ^ v1 ^ v2 ^ v3


def _round(
    v0: U64Array, v1: U64Array, v2: U64Array, v3: U64Array, scratch: U64Array
) -> None:
    """Do one SipRound in place."""
    np.add(v0, v1, out=v0)
    _rotate(v1, _LEFT_13, scratch)
    np.bitwise_xor(v1, v0, out=v1)
    _rotate(v0, _LEFT_32, scratch)
    np.add(v2, v3, out=v2)
    _rotate(v3, _LEFT_16, scratch)
    np.bitwise_xor(v3, v2, out=v3)
    np.add(v0, v3, out=v0)
    _rotate(v3, _LEFT_21, scratch)
    np.bitwise_xor(v3, v0, out=v3)
    np.add(v2, v1, out=v2)
    _rotate(v1, _LEFT_17, scratch)
    np.bitwise_xor(v1, v2, out=v1)
    _rotate(v2, _LEFT_32, scratch)


def _rotate(word: U64Array, by: tuple[np.uint64, np.uint64], scratch: U64Array) -> None:
    np.left_shift(word, by[0], out=scratch)
    np.right_shift(word, by[1], out=word)
    np.bitwise_or(word, scratch, out=word)


def _left(bits: int) -> tuple[np.uint64, np.uint64]:
    return np.uint64(bits), np.uint64(64 - bits)


_LEFT_13, _LEFT_16, _LEFT_17 = _left(13), _left(16), _left(17)
_LEFT_21, _LEFT_32 = _left(21), _left(32)
