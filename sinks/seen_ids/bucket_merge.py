"""Merges the entries of a bucket into chunks that do not overlap, in bounded memory.

The merge cuts the range of fingerprints into equal parts; their number is a power of
two. The entries of each part are a chunk. Fingerprints are keyed hashes and spread
evenly, so chunks are about equal. All entries of an ID are in one chunk.

A Bloom filter over the bucket's IDs is cut at the same places, since fingerprints
choose its blocks in proportion: each chunk carries the share of its own range.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tallyweir.sinks.seen_ids.bloom_filter import (
    Asked,
    BloomFilter,
    blocks_for,
    rate_of_one,
)
from tallyweir.sinks.seen_ids.entries import Entries
from tallyweir.sinks.seen_ids.ordering import U64Array
from tallyweir.sinks.seen_ids.word_table import WordTable

#: A chunk has between half of this number and this number of IDs. A look-up reads a
#: slice of one chunk.
CHUNK_IDS = 1 << 14
#: Entries that are held in memory before they are sorted and put into a file.
_SPILLED_ENTRIES = 1 << 18
_COLUMNS = 4
_WORD_BITS = 64
_HALF = np.uint64(32)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chunk:
    """The entries of one part of the range of fingerprints, never empty.

    Attributes:
        number: Number of the part.
        entries: Sorted by fingerprint, then by batch.
        filter: The part's share of the filter over all chunks.
    """

    number: int
    entries: Entries
    filter: bytes


class BucketMerge:
    """Takes the entries of one bucket in any order, and gives them back as chunks.

    Args:
        directory: On a local disk; takes 32 bytes per entry, in files without a name.
        false_positives: Rate of the catalog that the bucket belongs to.
    """

    def __init__(self, directory: Path, *, false_positives: float) -> None:
        self._directory = directory
        self._false_positives = false_positives
        self._pending: list[Entries] = []
        self._pending_entries = 0
        self._sorted: list[Entries] = []
        self._entries = 0

    def __len__(self) -> int:
        return self._entries

    @property
    def count(self) -> int:
        """Number of parts that the range of fingerprints is cut into."""
        return 1 << ((max(self._entries, 1) - 1) // CHUNK_IDS).bit_length()

    def add(self, entries: Entries) -> None:
        """Add some entries.

        Raises:
            OSError: There is no room on the disk.
        """
        self._pending.append(entries)
        self._pending_entries += len(entries)
        self._entries += len(entries)
        if self._pending_entries >= _SPILLED_ENTRIES:
            self._spill()

    def chunks(self) -> Iterator[Chunk]:
        """Yield all entries, chunk by chunk, in order.

        Raises:
            OSError: There is no room on the disk.
        """
        self._spill()
        count = self.count
        rate = rate_of_one(self._false_positives)
        blocks = -(-blocks_for(self._entries, rate) // count)
        begins = [0] * len(self._sorted)
        for number in range(count):
            after = first_word(number + 1, count)
            ends = [
                len(one) if after is None else int(np.searchsorted(one.hi, after))
                for one in self._sorted
            ]
            parts = [
                one.take(slice(begin, end))
                for one, begin, end in zip(self._sorted, begins, ends, strict=True)
                if begin < end
            ]
            begins = ends
            if parts:
                entries = Entries.joined(parts).sorted()
                yield Chunk(
                    number=number,
                    entries=entries,
                    filter=_share(entries, count, blocks).encode(),
                )

    def _spill(self) -> None:
        if not self._pending:
            return
        entries = Entries.joined(self._pending).sorted()
        self._pending, self._pending_entries = [], 0
        table = WordTable(self._directory, columns=_COLUMNS, rows=len(entries))
        sequences = entries.sequences.view(np.uint64)
        table.append((entries.hi, entries.lo, entries.payload_hashes, sequences))
        hi, lo, payload_hashes, sequences = table.map()
        self._sorted.append(
            Entries(
                hi=hi,
                lo=lo,
                payload_hashes=payload_hashes,
                sequences=sequences.view(np.int64),
            )
        )


def first_word(number: int, count: int) -> np.uint64 | None:
    """Return the first word of a part of the range; None after the last part."""
    assert count & (count - 1) == 0
    if number == count:
        return None
    return np.uint64(number * ((1 << _WORD_BITS) // count))


def stretched(hi: U64Array, count: int) -> U64Array:
    """Stretch words from their parts of the range to the whole range."""
    return hi << np.uint64(count.bit_length() - 1)


def share_passes(share: bytes, hi: U64Array, lo: U64Array, *, count: int) -> bool:
    """Tell whether the share of a chunk lets all IDs of the chunk pass."""
    bloom = BloomFilter.joined({0: share}, count=1)
    asked = Asked(_words_of_share(hi, count), lo)
    return len(bloom.find_possible(asked)) == len(hi)


def _share(entries: Entries, count: int, blocks: int) -> BloomFilter:
    hi = _words_of_share(entries.hi, count)
    return BloomFilter.over(hi, entries.lo, blocks=blocks)


def _words_of_share(hi: U64Array, count: int) -> U64Array:
    # The first half of a word chooses the block, so the second must not move up.
    return stretched((hi >> _HALF) << _HALF, count)
