"""An index of a sorted column of first words: it says where to look for a word.

A binary search of millions of words waits for memory at each step, and each step must
end before the next one is known. Fingerprints are spread evenly. So the index stores
where the words with the same first bits begin; that leaves about a dozen neighbouring
words to search, and numpy requests memory for all rows at once.

However the words are spread, the answer is that of a binary search.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tallyweir.sinks.seen_ids.ordering import I64Array, U64Array

#: A cell has between half of this number and this number of words, and takes 4 bytes.
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
