"""SipHash-2-4 over many IDs at once.

The hash takes an injective encoding of an ID: for each part its header and then its
words, as ``part_words`` reads them. The header keeps ``("ab", "c")`` apart from
``("a", "bc")``. Numbers are encoded by value: a field that is promoted from 32 to 64
bits keeps the fingerprints of its IDs. A part longer than ``LONG_PART_BYTES`` is
replaced by its digest: one long ID must not make the word loop below run thousands of
times for a whole block.

The work is done in blocks of rows, large enough that the calls of numpy cost little.
Python loops over the words of the longest row, never over the rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tallyweir.sinks.seen_ids.part_words import (
    WORD_BYTES,
    I64Array,
    Part,
    PartBlock,
    Tag,
    U64Array,
    cut_block,
)

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
