"""The order of fingerprints, and how they are found in sorted columns.

The order is by ``hi``, then by ``lo``, then by what the caller adds. The sort uses
single words: the first bits of each ``hi``, with the number of its row in the last
bits. That takes half the time of ``numpy.argsort(hi)``, and is right for every row
whose first bits no other row shares. Equal IDs share them, and rarely others by chance;
only those rows are sorted again, by all keys.

A binary search of millions of words waits for memory at each step, and each step must
end before the next one is known. Fingerprints are spread evenly. So a ``PlaceIndex``
stores where the words with the same first bits begin; that leaves about a dozen
neighbouring words to search, and numpy requests memory for all rows at once. However
the words are spread, the answer is that of a binary search.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

U64Array = npt.NDArray[np.uint64]
I64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

WORD_BITS = 64
WORD_MAX = 2**64 - 1
#: Shifts the upper half of a word into the lower one.
HALF_WORD = np.uint64(32)


def fingerprint_order(
    hi: U64Array, lo: U64Array, *tie_breakers: npt.NDArray[Any]
) -> I64Array:
    """Return the rows in the order of ``(hi, lo, *tie_breakers)``."""
    return _order(hi, lo, tie_breakers, kind="quicksort")


def merge_order(
    hi: U64Array, lo: U64Array, *tie_breakers: npt.NDArray[Any]
) -> I64Array:
    """Return ``fingerprint_order`` for a few sorted columns laid end to end.

    A stable sort finds pieces that are in order and merges them, in a quarter of the
    time that sorting takes. On unordered rows it would take twice as long.
    """
    return _order(hi, lo, tie_breakers, kind="stable")


def _order(
    hi: U64Array,
    lo: U64Array,
    tie_breakers: tuple[npt.NDArray[Any], ...],
    *,
    kind: Literal["quicksort", "stable"],
) -> I64Array:
    row_bits = np.uint64(len(hi).bit_length())
    row_mask = (np.uint64(1) << row_bits) - np.uint64(1)
    words = hi & ~row_mask
    words |= np.arange(len(hi), dtype=np.uint64)
    words.sort(kind=kind)
    order: I64Array = (words & row_mask).view(np.int64)
    words >>= row_bits
    equal = words[1:] == words[:-1]
    if equal.any():
        tied = np.zeros(len(hi), dtype=np.bool_)
        tied[1:] |= equal
        tied[:-1] |= equal
        # Tied rows of the same bits are neighbours, so when all tied rows are sorted
        # together, each group keeps its own places.
        rows = order[tied]
        keys = (*(key[rows] for key in reversed(tie_breakers)), lo[rows], hi[rows])
        order[tied] = rows[np.lexsort(keys)]
    return order


def first_of_each(hi: U64Array, lo: U64Array) -> BoolArray:
    """Mark the first row of each fingerprint in sorted columns."""
    first = np.ones(len(hi), dtype=np.bool_)
    first[1:] = _differ(hi, lo)
    return first


def last_of_each(hi: U64Array, lo: U64Array) -> BoolArray:
    """Mark the last row of each fingerprint in sorted columns."""
    last = np.ones(len(hi), dtype=np.bool_)
    last[:-1] = _differ(hi, lo)
    return last


def _differ(hi: U64Array, lo: U64Array) -> BoolArray:
    """Mark each row, from the second on, that differs from the one before it."""
    differ: BoolArray = hi[1:] != hi[:-1]
    # Equal first words are rare, and only they need their second ones compared.
    equal = np.flatnonzero(~differ)
    differ[equal] = lo[equal + 1] != lo[equal]
    return differ


def is_strictly_sorted(hi: U64Array, lo: U64Array) -> bool:
    """Tell whether the pairs rise, with no pair twice."""
    rises = (hi[1:] > hi[:-1]) | ((hi[1:] == hi[:-1]) & (lo[1:] > lo[:-1]))
    return bool(rises.all())


def find_pairs(
    sorted_hi: U64Array, sorted_lo: U64Array, hi: U64Array, lo: U64Array
) -> tuple[I64Array, I64Array]:
    """Look up fingerprints in sorted columns that hold no pair twice.

    Returns:
        The rows of the query that were found, and their places.
    """
    left = np.searchsorted(sorted_hi, hi)
    return find_pairs_from(left, sorted_hi, sorted_lo, hi, lo)


def find_pairs_from(
    left: I64Array,
    sorted_hi: U64Array,
    sorted_lo: U64Array,
    hi: U64Array,
    lo: U64Array,
) -> tuple[I64Array, I64Array]:
    """Do the same if the first place of each ``hi`` is already known."""
    if not len(sorted_hi):
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    rows = np.flatnonzero(sorted_hi.take(left, mode="clip") == hi)
    at = left[rows]
    same = sorted_lo[at] == lo[rows]
    rest = np.flatnonzero(~same)
    if rest.size:
        # Other IDs begin with the same word; or the ID is missing and shares the first
        # word with another by chance.
        end = np.searchsorted(sorted_hi, hi[rows[rest]], side="right")
        at[rest] = _lower_bound(sorted_lo, at[rest], end, lo[rows[rest]])
        inside = at[rest] < end
        same[rest[inside]] = sorted_lo[at[rest[inside]]] == lo[rows[rest[inside]]]
    return rows[same], at[same]


def _lower_bound(
    sorted_lo: U64Array, begin: I64Array, end: I64Array, lo: U64Array
) -> I64Array:
    """Search ``lo`` among the rows of equal ``hi``, for every query at once."""
    open_end = end
    while (begin < open_end).any():
        middle = (begin + open_end) // 2
        # A finished search may stand one past the last row.
        less = sorted_lo[np.minimum(middle, len(sorted_lo) - 1)] < lo
        less &= begin < open_end
        begin, open_end = (
            np.where(less, middle + 1, begin),
            np.where(less, open_end, np.minimum(middle, open_end)),
        )
    return begin


#: A cell has between half of this number and this number of words, and takes 4 bytes.
_CELL_WORDS = 16
_ROWS_MAX = 1 << 32


class PlaceIndex:
    """Finds words in one sorted column, which it does not hold; never changes.

    Args:
        words: The column.
    """

    def __init__(self, words: U64Array) -> None:
        assert len(words) < _ROWS_MAX, "4 bytes tell where a cell begins"
        bits = max(1, (len(words) // _CELL_WORDS).bit_length())
        self._shift = np.uint64(WORD_BITS - bits)
        firsts = np.arange(1 << bits, dtype=np.uint64) << self._shift
        self._begins: npt.NDArray[np.uint32] = np.empty((1 << bits) + 1, np.uint32)
        self._begins[:-1] = np.searchsorted(words, firsts)
        self._begins[-1] = len(words)
        longest = int(np.diff(self._begins).max())
        #: Limit on the halving steps of a search.
        self.steps = longest.bit_length()

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it takes."""
        return self._begins.nbytes

    def find_places(self, words: U64Array, wanted: U64Array) -> I64Array:
        """Return the first place of each word, or where it would be inserted.

        Args:
            words: The indexed column.
            wanted: Words in any order; sorted order is fastest.
        """
        cells = (wanted >> self._shift).view(np.int64)
        places = self._begins.take(cells).astype(np.int64)
        left = self._begins.take(cells + 1).astype(np.int64)
        left -= places
        for _ in range(self.steps):
            half = left >> 1
            # A finished search reads some word and ignores it.
            is_less = words.take(places + half, mode="clip") < wanted
            is_less &= left > 0
            places += is_less * (half + 1)
            left = np.where(is_less, left - half - 1, half)
        return places
