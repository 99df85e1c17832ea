"""Where in a sorted column of first words to look for one of them.

A binary search of millions of words waits for memory at each of its steps, and each
step must be done before the next one is known. Fingerprints are spread evenly, so an
index of where the words begin that share their first bits leaves about a dozen of
them, which lie beside each other; and numpy asks memory for all rows at once.

However the words are spread, the answer is that of a binary search.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sinks.seen_ids.ordering import I64Array, U64Array

#: A cell has half so many to so many words, at 4 bytes for the cell.
_CELL_WORDS = 16
_WORD_BITS = 64
_ROWS_MAX = 1 << 32


class PlaceIndex:
    """Finds words in one sorted column, which it does not hold; never changes.

    Args:
        words: The column.
    """

    def __init__(self, words: U64Array) -> None:
        assert len(words) < _ROWS_MAX, "4 bytes tell where a cell begins"
        bits = max(1, (len(words) // _CELL_WORDS).bit_length())
        self._shift = np.uint64(_WORD_BITS - bits)
        firsts = np.arange(1 << bits, dtype=np.uint64) << self._shift
        self._begins: npt.NDArray[np.uint32] = np.empty((1 << bits) + 1, np.uint32)
        self._begins[:-1] = np.searchsorted(words, firsts)
        self._begins[-1] = len(words)
        longest = int(np.diff(self._begins).max())
        #: How often a search halves what is left, at most.
        self.steps = longest.bit_length()

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        return self._begins.nbytes

    def find_places(self, words: U64Array, wanted: U64Array) -> I64Array:
        """Return the first place of each word, or where it would have to be put.

        Args:
            words: The column that the index is of.
            wanted: In any order; in theirs is fastest.
        """
        cells = (wanted >> self._shift).view(np.int64)
        places = self._begins.take(cells).astype(np.int64)
        left = self._begins.take(cells + 1).astype(np.int64)
        left -= places
        for _ in range(self.steps):
            half = left >> 1
            # A search that is over looks at any word and takes no notice of it.
            is_less = words.take(places + half, mode="clip") < wanted
            is_less &= left > 0
            places += is_less * (half + 1)
            left = np.where(is_less, left - half - 1, half)
        return places
