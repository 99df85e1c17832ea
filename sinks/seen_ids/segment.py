"""A segment: IDs of a range of batches, sorted, in one file that is mapped, not read.

A file has four columns: ``hi``, ``lo``, payload hash (0: no hash kept), bucket. A
search reads ``hi``; it reads the other columns only where ``hi`` matches, which almost
never happens for a new ID. A Bloom filter in memory spares most new IDs the search.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from tallyweir.sinks.protocol.catalog_limits import FALSE_POSITIVES
from tallyweir.sinks.seen_ids.bloom_filter import (
    Asked,
    BloomFilter,
    blocks_for,
    rate_of_one,
)
from tallyweir.sinks.seen_ids.claim import NO_HASH, Found
from tallyweir.sinks.seen_ids.ordering import (
    BoolArray,
    I64Array,
    PlaceIndex,
    U64Array,
    find_pairs,
    find_pairs_from,
    last_of_each,
    merge_order,
)
from tallyweir.sinks.seen_ids.run import Run
from tallyweir.sinks.seen_ids.word_table import WordTable

_COLUMNS = 4
#: IDs that are merged at a time, in memory.
_BLOCK_IDS = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Hits:
    """Rows of a query that were found, with their entries.

    Attributes:
        rows: Each at most once.
        payload_hashes: ``NO_HASH`` if no hash was kept.
        buckets: The bucket under which each ID is filed.
        looked_up: Number of rows that were searched for: no filter ruled them out.
    """

    rows: I64Array
    payload_hashes: U64Array
    buckets: I64Array
    looked_up: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Columns:
    """IDs sorted by (hi, lo), no pair twice, as four columns.

    Attributes:
        hi: First words of the fingerprints.
        lo: Second words.
        payload_hashes: ``NO_HASH`` if no hash was kept.
        buckets: The bucket under which each ID is filed.
        bloom: Optional filter over the fingerprints. It spares look-ups and decides
            nothing: IDs that it does not rule out are looked up.
        places: Optional index of the first words, if there are many.
    """

    hi: U64Array
    lo: U64Array
    payload_hashes: U64Array
    buckets: I64Array
    bloom: BloomFilter | None = None
    places: PlaceIndex | None = None

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
        nothing = np.empty((_COLUMNS, 0), dtype=np.uint64)
        return _columns_of(nothing, FALSE_POSITIVES)

    def slice(self, begin: int, end: int) -> Columns:
        """Return the IDs of a range of rows."""
        return Columns(
            hi=self.hi[begin:end],
            lo=self.lo[begin:end],
            payload_hashes=self.payload_hashes[begin:end],
            buckets=self.buckets[begin:end],
        )

    def look_up(self, asked: Asked) -> Hits:
        """Return the rows of the question that were found, and their entries."""
        rows: I64Array = np.arange(len(asked))
        if self.bloom is not None:
            rows = self.bloom.find_possible(asked)
            asked = asked.take(rows)
        found, at = self._search(asked.hi, asked.lo)
        return Hits(
            rows=rows[found],
            payload_hashes=self.payload_hashes[at],
            buckets=self.buckets[at],
            looked_up=len(asked),
        )

    def _search(self, hi: U64Array, lo: U64Array) -> tuple[I64Array, I64Array]:
        if self.places is None:
            return find_pairs(self.hi, self.lo, hi, lo)
        left = self.places.find_places(self.hi, hi)
        return find_pairs_from(left, self.hi, self.lo, hi, lo)


def write_merged(
    directory: Path,
    sources: Sequence[Columns],
    live_from_bucket: int,
    *,
    false_positives: float = FALSE_POSITIVES,
) -> Columns:
    """Join sorted columns in a new file, without the IDs of expired buckets.

    It takes memory for ``_BLOCK_IDS`` IDs at a time, however many there are.

    Args:
        directory: Where the file takes its space; it has no name there.
        sources: Columns, the oldest first for each bucket. If an ID is in several, as
            after a correction, its newest entry stays: the last of the latest bucket,
            since a correction is never filed under an earlier one.
        live_from_bucket: Older buckets have expired.
        false_positives: Rate of the copy that the segment belongs to.

    Raises:
        OSError: The disk has no room.

    Crash:
        The file vanishes with the process.
    """
    room = sum(map(len, sources))
    if not room:
        return Columns.of_nothing()
    table = WordTable(directory, columns=_COLUMNS, rows=room)
    for block in _blocks(sources, room):
        merged = _merge(block, live_from_bucket)
        buckets = merged.buckets.view(np.uint64)
        table.append((merged.hi, merged.lo, merged.payload_hashes, buckets))
    return _columns_of(table.map(), false_positives)


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
    live = [_live_of(columns, live_from_bucket) for columns in sources]
    hi = np.concatenate([columns.hi for columns in live])
    lo = np.concatenate([columns.lo for columns in live])
    buckets = np.concatenate([columns.buckets for columns in live])
    hashes = np.concatenate([columns.payload_hashes for columns in live])
    order = merge_order(hi, lo, buckets, np.arange(len(hi)))
    last = last_of_each(hi[order], lo[order])
    if not last.all():
        order = order[last]
    return Columns(
        hi=hi[order],
        lo=lo[order],
        payload_hashes=hashes[order],
        buckets=buckets[order],
    )


def _live_of(columns: Columns, live_from_bucket: int) -> Columns:
    """Leave out the IDs of expired buckets; if no bucket has expired, copy nothing."""
    is_live = columns.buckets >= live_from_bucket
    if is_live.all():
        return columns
    return Columns(
        hi=columns.hi[is_live],
        lo=columns.lo[is_live],
        payload_hashes=columns.payload_hashes[is_live],
        buckets=columns.buckets[is_live],
    )


def _columns_of(table: U64Array, false_positives: float) -> Columns:
    hi, lo, payload_hashes, buckets = table
    blocks = blocks_for(len(hi), rate_of_one(false_positives))
    return Columns(
        hi=hi,
        lo=lo,
        payload_hashes=payload_hashes,
        buckets=buckets.view(np.int64),
        bloom=BloomFilter.over(hi, lo, blocks=blocks),
        places=PlaceIndex(hi),
    )


class Part(Protocol):
    """Some of the IDs of a view; no ID is in it twice."""

    def __len__(self) -> int: ...

    def look_up(self, asked: Asked) -> Hits:
        """Return the rows of the question that were found, and their entries."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SegmentView:
    """The live IDs up to one batch; stays valid when files are removed.

    Attributes:
        parts: The parts to search. If two parts hold IDs of one bucket, the part with
            the older batches comes first.
        live_from_bucket: IDs of older buckets count as never seen.
    """

    parts: tuple[Part, ...]
    live_from_bucket: int

    def find(self, hi: U64Array, lo: U64Array) -> Found:
        """Look up fingerprints, in every live bucket; the newest entry answers.

        An ID that was corrected has several entries. Each was filed under the bucket of
        the entry before it or a later one, so the newest is the last of the latest
        bucket.
        """
        asked = Asked(hi, lo)
        looked_up = met = 0
        found: BoolArray = np.zeros(len(asked), dtype=np.bool_)
        hashes = np.full(len(asked), NO_HASH, dtype=np.uint64)
        buckets = np.full(len(asked), self.live_from_bucket, dtype=np.int64)
        for part in self.parts:
            hits = part.look_up(asked)
            looked_up += hits.looked_up
            met += len(hits.rows)
            if hits.rows.size:
                newer = np.flatnonzero(hits.buckets >= buckets[hits.rows])
                rows = hits.rows[newer]
                found[rows] = True
                hashes[rows] = hits.payload_hashes[newer]
                buckets[rows] = hits.buckets[newer]
        return Found(
            found=found,
            payload_hashes=hashes,
            buckets=buckets,
            looked_up=looked_up,
            met=met,
        )
