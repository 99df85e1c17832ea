"""SipHash-2-4 over many IDs at once, and how values are read as words to hash.

A part is one column of values. Its value in a row is read as little-endian words of
eight bytes, padded with zeros, under a header ``tag | length << 8``. The tag keeps the
text ``"5"`` apart from the number 5, the length keeps the padding apart from a value's
own zeros. A value that is longer than the caller's limit is replaced, under a tag of
its own, by its keyed BLAKE2b digest, which bounds the width of a block's words: one
long ID must not make the loop over words run thousands of times for a whole block.
Payloads are read in the same way (``event_hashes``).

The hash takes an injective encoding of an ID: for each part its header and then its
words. The header keeps ``("ab", "c")`` apart from ``("a", "bc")``. Numbers are encoded
by value: a field that is promoted from 32 to 64 bits keeps the fingerprints of its IDs.

The work is done in blocks of rows, large enough that the calls of numpy cost little.
Python loops over the words of the longest row, never over the rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from tallyweir.sinks.seen_ids.ordering import I64Array, U64Array

WORD_BYTES = 8
KEY_BYTES = 16


_DIGEST_BYTES = 32
_TAG_LONG = 0x80

_KEEP_BYTES = np.array([(1 << 8 * n) - 1 for n in range(WORD_BYTES + 1)], np.uint64)


class Tag(IntEnum):
    """The kind of a part; it is hashed with the part."""

    TEXT = 1
    BYTES = 2
    INTEGER = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of many IDs; row ``i`` is ``data[offsets[i]:offsets[i + 1]]``."""

    tag: int
    data: npt.NDArray[np.uint8]
    offsets: I64Array

    def __len__(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartBlock:
    """Some rows of a part, long values replaced.

    Attributes:
        headers: Tag and true length of each row's value.
        data: The bytes of the values. After each value's start there are at least as
            many bytes as the longest value takes, rounded up to whole words.
        starts: Where each value begins.
        lengths: Number of bytes of each value, at most the limit.
    """

    headers: U64Array
    data: npt.NDArray[np.uint8]
    starts: I64Array
    lengths: I64Array

    @property
    def width(self) -> int:
        """Number of words of the longest value."""
        return _words_for(int(self.lengths.max()))

    def count_words(self) -> I64Array:
        """Return how many words each row's value has, without its header."""
        counts: I64Array = (self.lengths + (WORD_BYTES - 1)) // WORD_BYTES
        return counts

    def take(self, rows: I64Array) -> PartBlock:
        """Return some of the rows."""
        return PartBlock(
            headers=self.headers[rows],
            data=self.data,
            starts=self.starts[rows],
            lengths=self.lengths[rows],
        )

    def read(self) -> U64Array:
        """Return the values as words: shape (rows, ``width``), zeros after each."""
        width = self.width
        if not width:
            return np.empty((len(self.starts), 0), dtype=np.uint64)
        row_bytes = WORD_BYTES * width
        # A row begins at every byte, so rows overlap; each is copied whole.
        rows = np.ndarray(
            (self.data.size - row_bytes + 1,),
            dtype=f"V{row_bytes}",
            buffer=self.data,
            strides=(1,),
        )
        words: U64Array = rows[self.starts].view("<u8").reshape(-1, width)
        for at in range(int(self.lengths.min()) // WORD_BYTES, width):
            # Bytes beyond a value's end belong to the next value.
            rest = np.clip(self.lengths - at * WORD_BYTES, 0, WORD_BYTES)
            words[:, at] &= _KEEP_BYTES[rest]
        return words


def cut_block(
    part: Part, begin: int, end: int, key: bytes, *, long_bytes: int
) -> PartBlock:
    """Cut one or more rows out of a part.

    Args:
        part: The part.
        begin: The first row.
        end: One past the last row.
        key: The secret of the installation, 16 bytes.
        long_bytes: A longer value is replaced by its digest.
    """
    assert len(key) == KEY_BYTES, "the installation's key has 16 bytes"
    offsets = part.offsets[begin : end + 1]
    starts = offsets[:-1]
    lengths = np.diff(offsets)
    headers = (lengths.astype(np.uint64) << np.uint64(8)) | np.uint64(part.tag)
    long_rows = np.flatnonzero(lengths > long_bytes)
    if long_rows.size:
        digests = bytearray()
        for row in long_rows.tolist():
            value = part.data[offsets[row] : offsets[row + 1]].tobytes()
            digests += _digest(value, key)
        headers[long_rows] |= np.uint64(_TAG_LONG)
        starts = starts - offsets[0]
        starts[long_rows] = (
            offsets[-1] - offsets[0] + _DIGEST_BYTES * np.arange(long_rows.size)
        )
        lengths[long_rows] = _DIGEST_BYTES
        own = part.data[offsets[0] : offsets[-1]]
        data = np.concatenate([own, np.frombuffer(digests, dtype=np.uint8)])
    else:
        data = part.data
    row_bytes = WORD_BYTES * _words_for(int(lengths.max()))
    if int(starts.max()) + row_bytes > data.size:
        if data is part.data:
            data, starts = data[offsets[0] : offsets[-1]], starts - offsets[0]
        data = np.concatenate([data, np.zeros(row_bytes, dtype=np.uint8)])
    return PartBlock(headers=headers, data=data, starts=starts, lengths=lengths)


def _words_for(length: int) -> int:
    return (length + (WORD_BYTES - 1)) // WORD_BYTES


def _digest(value: bytes, key: bytes) -> bytes:
    return hashlib.blake2b(value, digest_size=_DIGEST_BYTES, key=key).digest()


FINGERPRINT_BYTES = 16
LONG_PART_BYTES = 512
BLOCK_ROWS = 1 << 14

_WORDS_OUT = 2

#: Bits to shift to the left and to the right, for all words or for each row of words.
_Shifts = tuple[U64Array | np.uint64, U64Array | np.uint64]

_IV = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
_DOMAIN_128, _SECOND_WORD = 0xEE, 0xDD


def fingerprint_of(values: Sequence[str | int], key: bytes) -> bytes:
    """Fingerprint one ID; 16 bytes, equal to what ``fingerprint`` gives for a column.

    Args:
        values: The parts of the ID; numbers have 64 bits.
        key: The secret of the installation, 16 bytes.
    """
    return to_bytes(hash_parts([_part_of(value) for value in values], key))


def hash_parts(parts: Sequence[Part], key: bytes) -> U64Array:
    """Hash the ID of each row to 128 bits.

    Args:
        parts: The parts of the IDs: at least one, all with the same number of rows.
        key: The secret of the installation, 16 bytes.

    Returns:
        Array of shape (rows, 2).
    """
    assert parts, "an ID has at least one part"
    rows = len(parts[0])
    assert all(len(part) == rows for part in parts)
    hashes = np.empty((rows, _WORDS_OUT), dtype=np.uint64)
    for begin in range(0, rows, BLOCK_ROWS):
        end = min(begin + BLOCK_ROWS, rows)
        blocks = [
            cut_block(part, begin, end, key, long_bytes=LONG_PART_BYTES)
            for part in parts
        ]
        _hash_block(blocks, key, hashes[begin:end])
    return hashes


def to_bytes(fingerprints: U64Array) -> bytes:
    """Write fingerprints as 16 bytes each, which sort like the pairs."""
    return fingerprints.astype(">u8").tobytes()


def from_bytes(stored: bytes | memoryview) -> U64Array:
    """Read what ``to_bytes`` wrote; the first words come in one piece, then the second.

    Raises:
        ValueError: The length is not a multiple of 16 bytes.
    """
    pairs = np.frombuffer(stored, dtype=">u8").reshape(-1, 2)
    return pairs.astype(np.uint64, order="F")


def _part_of(value: str | int) -> Part:
    if isinstance(value, int):
        tag, data = Tag.INTEGER, value.to_bytes(WORD_BYTES, "little", signed=True)
    else:
        tag, data = Tag.TEXT, value.encode()
    return Part(
        tag=tag,
        data=np.frombuffer(data, dtype=np.uint8),
        offsets=np.array([0, len(data)], dtype=np.int64),
    )


def _hash_block(blocks: list[PartBlock], key: bytes, hashes: U64Array) -> None:
    """Hash the rows of one block into ``hashes``.

    The rows with the most words come first, so that the rows which still have a word
    at position ``n`` are always a prefix of the block.
    """
    totals: I64Array = np.sum([1 + block.count_words() for block in blocks], axis=0)
    order: I64Array | None = None
    if totals.min() != totals.max():
        order = np.argsort(-totals, kind="stable")
        blocks = [block.take(order) for block in blocks]
        totals = totals[order]
    active = len(totals) - np.cumsum(np.bincount(totals))[:-1]
    state = _State(key)
    for count, words in zip(active.tolist(), _encode(blocks), strict=False):
        state.absorb(words[:count], len(totals))
    # The words are whole, so SipHash's last word holds only the length.
    state.absorb((totals.astype(np.uint64) * _WORD) << np.uint64(56), len(totals))
    finished = hashes if order is None else np.empty_like(hashes)
    state.finish(finished)
    if order is not None:
        hashes[order] = finished


def _encode(blocks: list[PartBlock]) -> U64Array:
    """Return encoded rows as words by position; beyond a row's end, any value."""
    rows = len(blocks[0].headers)
    positions = sum(1 + block.width for block in blocks)
    encoded = np.empty((positions, rows), dtype=np.uint64)
    begin: I64Array = np.zeros(rows, dtype=np.int64)
    for block in blocks:
        words = block.read().T
        first = int(begin[0])
        if (begin == first).all():
            encoded[first] = block.headers
            encoded[first + 1 : first + 1 + len(words)] = words
        else:
            # The zeros after a shorter value are overwritten by the next part.
            columns = np.arange(rows)
            encoded[begin, columns] = block.headers
            for at, column in enumerate(words, 1):
                encoded[begin + at, columns] = column
        begin = begin + 1 + block.count_words()
    return encoded


class _State:
    """The four words of SipHash for each row of a block.

    While all rows have absorbed the same words, one state stands for all.
    """

    __slots__ = ("_even", "_odd", "_scratch")

    def __init__(self, key: bytes) -> None:
        halves = (int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little"))
        v0, v1, v2, v3 = (constant ^ halves[at % 2] for at, constant in enumerate(_IV))
        #: Words one and three, and words two and four. SipHash does the same to both
        #: words of a pair, so one call serves both.
        self._even = np.array([[v0], [v2]], dtype=np.uint64)
        self._odd = np.array([[v1 ^ _DOMAIN_128], [v3]], dtype=np.uint64)
        self._scratch = np.empty((2, 1), dtype=np.uint64)

    def absorb(self, words: U64Array, rows: int) -> None:
        """Mix one word into each of the first rows, one row per word.

        Args:
            words: One word for each of these rows.
            rows: Number of all rows.
        """
        if self._even.shape[1] < rows:
            if len(words) == rows and (words == words[0]).all():
                words = words[:1]
            else:
                self._spread(rows)
        count = len(words)
        even, odd = self._even[:, :count], self._odd[:, :count]
        scratch = self._scratch[:, :count]
        np.bitwise_xor(odd[1], words, out=odd[1])
        for _ in range(2):
            _round(even, odd, scratch)
        np.bitwise_xor(even[0], words, out=even[0])

    def _spread(self, rows: int) -> None:
        self._even = np.repeat(self._even, rows, axis=1)
        self._odd = np.repeat(self._odd, rows, axis=1)
        self._scratch = np.empty((2, rows), dtype=np.uint64)

    def finish(self, hashes: U64Array) -> None:
        """Write both words of each row's hash."""
        even, odd = self._even, self._odd
        even[1] ^= np.uint64(_DOMAIN_128)
        for at in range(_WORDS_OUT):
            if at == 1:
                odd[0] ^= np.uint64(_SECOND_WORD)
            for _ in range(4):
                _round(even, odd, self._scratch)
            mixed = np.bitwise_xor(even, odd)
            hashes[:, at] = mixed[0] ^ mixed[1]


def _round(even: U64Array, odd: U64Array, scratch: U64Array) -> None:
    """Do one SipRound in place."""
    np.add(even, odd, out=even)
    _rotate(odd, _LEFT_13_16, scratch)
    np.bitwise_xor(odd, even, out=odd)
    _rotate(even[0], _LEFT_32, scratch[0])
    crossed = odd[::-1]
    np.add(even, crossed, out=even)
    _rotate(crossed, _LEFT_21_17, scratch)
    np.bitwise_xor(crossed, even, out=crossed)
    _rotate(even[1], _LEFT_32, scratch[1])


def _rotate(words: U64Array, by: _Shifts, scratch: U64Array) -> None:
    np.left_shift(words, by[0], out=scratch)
    np.right_shift(words, by[1], out=words)
    np.bitwise_or(words, scratch, out=words)


def _left(*bits: int) -> _Shifts:
    """Return shifts that rotate each row of words left by its own number of bits."""
    left = np.array(bits, dtype=np.uint64)[:, np.newaxis]
    return left, np.uint64(64) - left


_WORD = np.uint64(WORD_BYTES)
_LEFT_13_16, _LEFT_21_17 = _left(13, 16), _left(21, 17)
_LEFT_32 = np.uint64(32), np.uint64(32)
