"""A segment: IDs of a range of batches, sorted, in one file that is mapped, not read.

A file is four columns one after the other, native byte order, 8 bytes a value: ``hi``,
``lo``, payload hash (0: none kept), bucket. A search touches ``hi``; the other columns
are looked at only where ``hi`` is met, which a new ID practically never does. A Bloom
filter in memory keeps most new IDs from being searched for at all.

Files have no names, are written once and never changed.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sinks.seen_ids.bloom_filter import BloomFilter
from sinks.seen_ids.claim import NO_HASH, Found
from sinks.seen_ids.ordering import (
    BoolArray,
    I64Array,
    U64Array,
    find_pairs,
    fingerprint_order,
    last_of_each,
)
from sinks.seen_ids.run import Run

BYTES_PER_ID = 32
_COLUMNS = 4
#: IDs that are merged at a time, in memory.
_BLOCK_IDS = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Columns:
    """IDs sorted by (hi, lo), no pair twice, as four columns.

    Attributes:
        hi: First words of the fingerprints.
        lo: Second words.
        payload_hashes: ``NO_HASH`` where none was kept.
        buckets: Under which each ID is filed.
        bloom: Over the fingerprints, where there is one. It spares look-ups and
            decides nothing: what it does not rule out is looked up.
    """

    hi: U64Array
    lo: U64Array
    payload_hashes: U64Array
    buckets: I64Array
    bloom: BloomFilter | None = None

    def __len__(self) -> int:
        return len(self.hi)

    @classmethod
    def of_run(cls, run: Run) -> Columns:
        hashes = run.payload_hashes
        if hashes is None:
            hashes = np.full(len(run), NO_HASH, dtype=np.uint64)
        return cls(
            hi=run.fingerprints[:, 0],
            lo=run.fingerprints[:, 1],
            payload_hashes=hashes,
            buckets=np.full(len(run), run.bucket, dtype=np.int64),
        )

    @classmethod
    def of_nothing(cls) -> Columns:
        return _columns_of(np.empty((_COLUMNS, 0), dtype=np.uint64))

    def slice(self, begin: int, end: int) -> Columns:
        """Return some of the IDs that follow each other."""
        return Columns(
            hi=self.hi[begin:end],
            lo=self.lo[begin:end],
            payload_hashes=self.payload_hashes[begin:end],
            buckets=self.buckets[begin:end],
        )

    def find(self, hi: U64Array, lo: U64Array) -> tuple[I64Array, I64Array]:
        """Return the rows of the query that are here, and where they are."""
        if self.bloom is None:
            return find_pairs(self.hi, self.lo, hi, lo)
        rows = self.bloom.find_possible(hi, lo)
        found, at = find_pairs(self.hi, self.lo, hi[rows], lo[rows])
        return rows[found], at


def write_merged(
    directory: Path, sources: Sequence[Columns], live_from_bucket: int
) -> Columns:
    """Join sorted columns in a new file, without the IDs of expired buckets.

    Memory is taken for ``_BLOCK_IDS`` at a time, however many there are.

    Args:
        directory: Where the file takes its room; it has no name there.
        sources: The oldest first. Of an ID that is in several, as one that was
            corrected is, the newest entry stays: none of the others outlives it.
        live_from_bucket: Older buckets have expired.

    Raises:
        OSError: There is no room.

    Crash:
        The file is gone with the process.
    """
    room = sum(map(len, sources))
    if not room:
        return Columns.of_nothing()
    # Whoever cleans up may have removed the folder.
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=directory) as file:
        # Room that is promised and not there would be found by a signal that kills.
        os.posix_fallocate(file.fileno(), 0, room * BYTES_PER_ID)
        mapped = mmap.mmap(file.fileno(), room * BYTES_PER_ID)
    table = np.frombuffer(mapped, dtype=np.uint64).reshape(_COLUMNS, room)
    written = 0
    for block in _blocks(sources, room):
        merged = _merge(block, live_from_bucket)
        end = written + len(merged)
        table[:, written:end] = (
            merged.hi,
            merged.lo,
            merged.payload_hashes,
            merged.buckets.view(np.uint64),
        )
        written = end
    table.flags.writeable = False
    return _columns_of(table[:, :written])


def _blocks(sources: Sequence[Columns], ids: int) -> Iterator[list[Columns]]:
    """Cut columns at the same words, evenly, since fingerprints are spread evenly."""
    count = -(-ids // _BLOCK_IDS)
    begins = [0] * len(sources)
    for number in range(1, count + 1):
        if number == count:
            ends = [len(one) for one in sources]
        else:
            word = np.uint64((number << 64) // count)
            ends = [int(np.searchsorted(one.hi, word)) for one in sources]
        yield [
            one.slice(begin, end)
            for one, begin, end in zip(sources, begins, ends, strict=True)
        ]
        begins = ends


def _merge(sources: Sequence[Columns], live_from_bucket: int) -> Columns:
    live = [columns.buckets >= live_from_bucket for columns in sources]
    hi = np.concatenate([c.hi[kept] for c, kept in zip(sources, live, strict=True)])
    lo = np.concatenate([c.lo[kept] for c, kept in zip(sources, live, strict=True)])
    order = fingerprint_order(hi, lo, np.arange(len(hi)))
    order = order[last_of_each(hi[order], lo[order])]
    hashes = [c.payload_hashes[kept] for c, kept in zip(sources, live, strict=True)]
    buckets = [c.buckets[kept] for c, kept in zip(sources, live, strict=True)]
    return Columns(
        hi=hi[order],
        lo=lo[order],
        payload_hashes=np.concatenate(hashes)[order],
        buckets=np.concatenate(buckets)[order],
    )


def _columns_of(table: U64Array) -> Columns:
    hi, lo, payload_hashes, buckets = table
    return Columns(
        hi=hi,
        lo=lo,
        payload_hashes=payload_hashes,
        buckets=buckets.view(np.int64),
        bloom=BloomFilter(hi, lo),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SegmentView:
    """The live IDs up to one batch; stays valid when files are removed.

    Attributes:
        parts: What to search, each sorted, the oldest first.
        live_from_bucket: IDs of older buckets are as if never seen.
    """

    parts: tuple[Columns, ...]
    live_from_bucket: int

    def find(self, hi: U64Array, lo: U64Array) -> Found:
        """Look up fingerprints, in every live bucket; the newest entry answers."""
        found: BoolArray = np.zeros(len(hi), dtype=np.bool_)
        hashes = np.full(len(hi), NO_HASH, dtype=np.uint64)
        buckets = np.zeros(len(hi), dtype=np.int64)
        for part in self.parts:
            rows, at = part.find(hi, lo)
            if rows.size:
                live = part.buckets[at] >= self.live_from_bucket
                rows, at = rows[live], at[live]
                found[rows] = True
                hashes[rows] = part.payload_hashes[at]
                buckets[rows] = part.buckets[at]
        return Found(found=found, payload_hashes=hashes, buckets=buckets)
