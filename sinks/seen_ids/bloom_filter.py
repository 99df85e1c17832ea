"""A Bloom filter over sorted fingerprints: it spares most IDs that are new a look-up.

It is the split block filter of Putze, Sanders and Singler ("Cache-, Hash- and
Space-Efficient Bloom Filters", 2007), as Parquet has it, with blocks of 256 bits: one
block for each fingerprint, and one bit in each of its eight parts of 32. Fingerprints
are keyed hashes already, so the filter uses their words as they are. An attacker
without the installation's key cannot choose IDs that fill a filter.

The first word of a fingerprint chooses the block in proportion. So sorted fingerprints
use one block after the other, and the filter reads memory in order, without jumps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property

import numpy as np

from tallyweir.sinks.protocol.catalog_limits import BUCKETS_PER_HORIZON
from tallyweir.sinks.seen_ids.ordering import HALF_WORD, I64Array, U64Array

_BLOCK_BITS = 256
_WORDS = 4
_PARTS = 8
_PART_BITS = 32
#: Few enough for the processor's cache to hold what is computed from them.
_ROWS_AT_ONCE = 1 << 15
_ONE = np.uint64(1)
_PICK = np.uint64(_PART_BITS - 1)
_NO_ROWS: I64Array = np.empty(0, dtype=np.int64)


class Asked:
    """Fingerprints to look up, with the values that every filter needs of them.

    A question goes to several filters, so these values are computed once.

    Args:
        hi: First words; sorting them only makes the search faster.
        lo: Second words.
    """

    def __init__(self, hi: U64Array, lo: U64Array) -> None:
        self.hi = hi
        self.lo = lo

    def __len__(self) -> int:
        return len(self.hi)

    def take(self, rows: I64Array) -> Asked:
        """Return some of them."""
        return Asked(self.hi[rows], self.lo[rows])

    @cached_property
    def halves(self) -> U64Array:
        """Halves of the first words, which choose the blocks."""
        return self.hi >> HALF_WORD

    @cached_property
    def first_bits(self) -> U64Array:
        """The bits that must be set in the first word of a block."""
        return _bits_of(self.lo, 0)


class BloomFilter:
    """Answers "certainly not" or "maybe" for fingerprints; never changes.

    Args:
        words: Shape (4, blocks): the four words of each block.
    """

    def __init__(self, words: U64Array) -> None:
        self._words = words
        self._count = words.shape[1]
        assert words.shape[0] == _WORDS
        assert 0 < self._count <= 1 << 32, "a filter of more than 128 GiB"

    @classmethod
    def over(cls, hi: U64Array, lo: U64Array, *, blocks: int) -> BloomFilter:
        """Make a filter of a given size.

        Args:
            hi: First words, sorted.
            lo: Second words of the same fingerprints.
            blocks: The result of ``blocks_for``.
        """
        made = cls.of_nothing(blocks=blocks)
        made.add(hi, lo)
        return made

    @classmethod
    def of_nothing(cls, *, blocks: int) -> BloomFilter:
        """Make an empty filter, to fill in steps before it is used."""
        return cls(np.zeros((_WORDS, blocks), dtype=np.uint64))

    @classmethod
    def joined(cls, shares: Mapping[int, bytes], *, count: int) -> BloomFilter:
        """Put a filter together from its shares, each of which ``encode`` wrote.

        Args:
            shares: By their numbers; a missing share is empty.
            count: How many shares there are.
        """
        blocks = len(next(iter(shares.values()))) // (_BLOCK_BITS // 8)
        words = np.zeros((_WORDS, count * blocks), dtype=np.uint64)
        for number, share in shares.items():
            words[:, number * blocks : (number + 1) * blocks] = np.frombuffer(
                share, dtype="<u8"
            ).reshape(_WORDS, blocks)
        return cls(words)

    def encode(self) -> bytes:
        """Return what ``joined`` reads, the same on every machine."""
        return self._words.astype("<u8").tobytes()

    def add(self, hi: U64Array, lo: U64Array) -> None:
        """Add some fingerprints to those that the filter lets pass.

        Args:
            hi: First words, sorted.
            lo: Second words of the same fingerprints.
        """
        for begin in range(0, len(hi), _ROWS_AT_ONCE):
            rows = slice(begin, begin + _ROWS_AT_ONCE)
            self._add(hi[rows], lo[rows])

    def _add(self, hi: U64Array, lo: U64Array) -> None:
        blocks = self._blocks_of(hi >> HALF_WORD)
        starts = np.flatnonzero(np.diff(blocks, prepend=-1))
        blocks = blocks[starts]
        for word in range(_WORDS):
            bits = np.bitwise_or.reduceat(_bits_of(lo, word), starts)
            # The previous rows may have begun the same block.
            self._words[word, blocks] |= bits

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it takes."""
        return int(self._words.nbytes)

    def find_possible(self, asked: Asked) -> I64Array:
        """Return the rows of the question that may be present; all others are not."""
        found = [_NO_ROWS]
        for begin in range(0, len(asked), _ROWS_AT_ONCE):
            part = slice(begin, begin + _ROWS_AT_ONCE)
            rows = self._find_some(
                asked.halves[part], asked.first_bits[part], asked.lo[part]
            )
            rows += begin
            found.append(rows)
        return np.concatenate(found)

    def _find_some(
        self, halves: U64Array, first_bits: U64Array, lo: U64Array
    ) -> I64Array:
        blocks = self._blocks_of(halves)
        rows = _rows_with(self._words[0], blocks, first_bits)
        # Few are left for the other words.
        blocks, lo = blocks[rows], lo[rows]
        for word in range(1, _WORDS):
            kept = _rows_with(self._words[word], blocks, _bits_of(lo, word))
            rows, blocks, lo = rows[kept], blocks[kept], lo[kept]
        return rows

    def _blocks_of(self, halves: U64Array) -> I64Array:
        scaled = halves * np.uint64(self._count)
        scaled >>= HALF_WORD
        return scaled.view(np.int64)


def rate_of_one(false_positives: float) -> float:
    """Return the rate for each filter that keeps a rate for the whole catalog."""
    return false_positives / BUCKETS_PER_HORIZON


def blocks_for(ids: int, false_positives: float) -> int:
    """Return the number of blocks for a filter over ``ids`` IDs."""
    return max(1, math.ceil(ids * bits_per_id(false_positives) / _BLOCK_BITS))


def bits_per_id(false_positives: float) -> float:
    """Return how many bits an ID needs for a rate of false positives.

    The number of IDs in a block follows a Poisson distribution. In a block with n IDs,
    another ID finds all of its eight bits set with probability
    ``(1 - (1 - 1/32)**n)**8``.
    """
    low, high = 4.0, 64.0
    for _ in range(40):
        middle = (low + high) / 2
        if _expected_rate(_BLOCK_BITS / middle) > false_positives:
            low = middle
        else:
            high = middle
    return high


def _expected_rate(ids_per_block: float) -> float:
    rate = 0.0
    probability = math.exp(-ids_per_block)
    for ids in range(1, int(ids_per_block * 4 + 40)):
        probability *= ids_per_block / ids
        rate += probability * (1 - (1 - 1 / _PART_BITS) ** ids) ** _PARTS
    return rate


def _rows_with(words: U64Array, blocks: I64Array, bits: U64Array) -> I64Array:
    """Return the rows whose blocks have all of the rows' bits set."""
    # Every block exists, and numpy is faster if it need not check that.
    met = words.take(blocks, mode="clip")
    met &= bits
    return np.flatnonzero(met == bits)


def _bits_of(lo: U64Array, word: int) -> U64Array:
    """Return one bit in each half of a word, chosen by ten bits of ``lo``."""
    low = (lo >> np.uint64(10 * word)) & _PICK
    high = (lo >> np.uint64(10 * word + 5)) & _PICK
    return (_ONE << low) | (_ONE << (high + HALF_WORD))
