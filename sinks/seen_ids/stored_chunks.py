"""The chunks of merged buckets, searched in Postgres until they have been fetched.

A driver fetches the filters at its start, but not the chunks. If a filter does not rule
an ID out, which is rare, the driver looks it up in Postgres, in a slice of one chunk.
When look-ups in a bucket have taken as much time as fetching its chunks would, the
driver fetches them; from then on it has all of them here. So whatever IDs come, the
cost is at most twice the cost of knowing them beforehand. This is the ski rental rule
(Karlin, Manasse, Rudolph and Sleator, "Competitive Snoopy Caching", 1988). A bucket
that gets hardly any copies is never fetched.

Once a bucket has been merged again, its slices are no longer found, and each look-up
reads a whole chunk. So the driver then fetches the bucket at the next opportunity.
Every question asks for the bucket's entries through one batch. A merge does not change
these, so the bucket may be merged again at any time.

Each bucket has its own filter, and a horizon has about eight buckets. Until all their
chunks are fetched, an ID is checked against each filter. Fetching also puts the IDs
into one common filter over all buckets. Once every chunk is here, the common filter of
the ``ChunkGroup`` comes first: a new ID costs the same however many buckets there are,
and only IDs that pass are checked against each bucket.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from tallyweir.sinks.protocol.errors import RetryableError
from tallyweir.sinks.seen_ids.bloom_filter import Asked, BloomFilter, blocks_for
from tallyweir.sinks.seen_ids.chunk import Entries, first_word, stretched
from tallyweir.sinks.seen_ids.claim import NO_HASH
from tallyweir.sinks.seen_ids.ordering import (
    HALF_WORD,
    WORD_BITS,
    WORD_MAX,
    BoolArray,
    I64Array,
    PlaceIndex,
    U64Array,
)
from tallyweir.sinks.seen_ids.segment import Columns, Hits
from tallyweir.sinks.seen_ids.word_table import WordTable

#: One question looks up at most so many IDs one by one, or one for so many IDs of the
#: bucket if that is more; beyond that, fetching is faster.
_LOOK_UPS_MAX = 2_000
_IDS_PER_LOOK_UP = 1_500
#: IDs that are fetched at a time.
_FETCHED_IDS = 1 << 20
#: Costs in microseconds (docs/benchmarks.md): a question to a filter, and each ID of
#: it; a trip to Postgres, and each ID of it; and fetching an ID. When chunks are here,
#: one filter serves all buckets; until then each bucket's own filter is used.
_QUESTION_US, _FILTER_US = 30.0, 0.006
_TRIP_US, _LOOK_UP_US = 300.0, 28.0
_FETCH_US = 0.07
_COLUMNS = 3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Slices:
    """Where to look for some IDs: for each, a range of entries in one chunk.

    Attributes:
        chunks: The number of the chunk for each ID; all columns have one row per ID.
        starts: The first entry of each slice.
        lengths: Number of entries in each slice.
        hi: First words of the IDs that are looked for.
        lo: Second words.
    """

    chunks: I64Array
    starts: I64Array
    lengths: I64Array
    hi: U64Array
    lo: U64Array

    def __len__(self) -> int:
        return len(self.chunks)


class ChunkReader(Protocol):
    """Reads chunks of one pipeline, from any thread; the home's adapter has one."""

    def find_in_slices(
        self, bucket: int, sequence: int, asked: Slices
    ) -> Mapping[int, Entries | None]:
        """Return the slices that may have the ID asked of them; None for others.

        A slice also counts as one that may have the ID if it does not reach past the ID
        on one side and the chunk has more entries on that side.

        Returns:
            Slices by their place in ``asked``, without those of chunks that were merged
            again or whose bucket is gone. Entries need not have their batch.
        """
        ...

    def read_entries(
        self, bucket: int, through_sequence: int, first_hi: int, last_hi: int
    ) -> Entries:
        """Return the bucket's entries between two words, of batches through one."""
        ...

    def close(self) -> None:
        """Release the resources that reading takes."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StoredChunks:
    """The chunks of one bucket as they were found, without their entries.

    Attributes:
        bucket: Their bucket.
        sequence: The newest batch that they may have entries of.
        count: Number of parts that the range of fingerprints is cut into.
        ids: Shape (count,): number of entries in each part; 0 if it has no chunk.
        bloom: Filter over all entries.
        reader: Reader for the database that has them.
    """

    bucket: int
    sequence: int
    count: int
    ids: I64Array
    bloom: BloomFilter
    reader: ChunkReader


class LazyChunks:
    """Looks IDs up in the chunks of one bucket, locally or in Postgres.

    Args:
        stored: The chunks as found in Postgres.
        directory: On a local disk; takes 24 bytes per ID once they are fetched.
        on_fetched: Called with the sorted words of IDs before they are here. After a
            failed fetch it is called with some of them again.
    """

    def __init__(
        self,
        stored: StoredChunks,
        directory: Path,
        *,
        on_fetched: Callable[[U64Array, U64Array], None],
    ) -> None:
        self._stored = stored
        self._directory = directory
        self._on_fetched = on_fetched
        self._fetching = threading.Lock()
        self._table: WordTable | None = None
        self._fetched_parts = 0
        self._columns: Columns | None = None
        self._spent_us = 0.0
        total = int(stored.ids.sum())
        self._parts_at_once = max(1, stored.count * _FETCHED_IDS // max(total, 1))

    def __len__(self) -> int:
        return int(self._stored.ids.sum())

    @property
    def bucket(self) -> int:
        """The bucket of the IDs."""
        return self._stored.bucket

    @property
    def is_fetched(self) -> bool:
        """Whether all chunks are here, so that Postgres is no longer asked."""
        return self._columns is not None

    @property
    def awaits_fetching(self) -> bool:
        """Whether it is time to fetch the chunks that are not here yet."""
        return not self.is_fetched and self._spent_us >= _FETCH_US * len(self)

    def look_up(self, asked: Asked) -> Hits:
        """Return the rows of the question that were found, and their entries.

        Raises:
            TallyweirError: The chunks could not be read; or ``SEEN_IDS_GONE``.
        """
        rows = self._stored.bloom.find_possible(asked)
        possible = asked.take(rows)
        if rows.size > max(_LOOK_UPS_MAX, len(self) // _IDS_PER_LOOK_UP):
            while self.fetch_some():
                pass
        columns = self._columns
        if columns is not None:
            hits = columns.look_up(possible)
            return Hits(
                rows=rows[hits.rows],
                payload_hashes=hits.payload_hashes,
                buckets=hits.buckets,
                looked_up=len(possible),
            )
        looked_up = len(possible)
        self._spent_us += _QUESTION_US + _FILTER_US * len(asked)
        hashes: U64Array = np.empty(0, dtype=np.uint64)
        if rows.size:
            self._spent_us += _TRIP_US + _LOOK_UP_US * looked_up
            is_there, hashes = self._ask(possible.hi, possible.lo)
            rows, hashes = rows[is_there], hashes[is_there]
        buckets = np.full(len(rows), self.bucket, dtype=np.int64)
        return Hits(
            rows=rows, payload_hashes=hashes, buckets=buckets, looked_up=looked_up
        )

    def fetch_some(self) -> bool:
        """Fetch the next of the chunks, and return whether there are more.

        Raises:
            TallyweirError: They could not be read, and nothing has changed; or they
                could not be stored, and fetching starts over at the first chunk.
        """
        with self._fetching:
            if self._columns is None:
                self._fetch_parts()
            return self._columns is None

    def _fetch_parts(self) -> None:
        stored, begin = self._stored, self._fetched_parts
        end = min(begin + self._parts_at_once, stored.count)
        try:
            table = self._table
            if table is None:
                # This fails without disk space before anything is read.
                table = WordTable(self._directory, columns=_COLUMNS, rows=len(self))
                self._table = table
            newest = self._read_parts(begin, end).newest()
            self._on_fetched(newest.hi, newest.lo)
            table.append((newest.hi, newest.lo, newest.payload_hashes))
            if end == stored.count:
                self._columns = self._columns_of(table.map())
        except OSError as error:
            self._table, self._fetched_parts = None, 0
            # Look-ups go on in Postgres. The next fetch waits until these have cost as
            # much again; it is not tried at every batch.
            self._spent_us = 0.0
            raise copy_failed(self._directory, error) from error
        self._fetched_parts = end

    def _columns_of(self, table: U64Array) -> Columns:
        hi, lo, payload_hashes = table
        return Columns(
            hi=hi,
            lo=lo,
            payload_hashes=payload_hashes,
            buckets=np.broadcast_to(np.int64(self.bucket), len(hi)),
            places=PlaceIndex(hi),
        )

    def _read_parts(self, begin: int, end: int) -> Entries:
        """Read some whole chunks, even if the bucket was merged again since.

        Raises:
            RetryableError: ``SEEN_IDS_GONE``.
        """
        stored = self._stored
        first, after = first_word(begin, stored.count), first_word(end, stored.count)
        assert first is not None
        entries = stored.reader.read_entries(
            stored.bucket,
            stored.sequence,
            int(first),
            WORD_MAX if after is None else int(after) - 1,
        )
        expected = int(stored.ids[begin:end].sum())
        if len(entries) != expected:
            raise RetryableError(
                "SEEN_IDS_GONE",
                saw=f"Bucket {stored.bucket} of the seen-ID catalog has {len(entries)} "
                f"of {expected} IDs that were there when its filter was read.",
                why="The bucket has expired meanwhile, or another process replaced "
                "what the pipeline had written. The driver cannot tell whether "
                "an ID was seen.",
                fix="Nothing to do: the driver starts over.",
            )
        return entries

    def _ask(self, hi: U64Array, lo: U64Array) -> tuple[BoolArray, U64Array]:
        """Look some IDs up in Postgres; tell which were found, and their hashes."""
        stored = self._stored
        is_there = np.zeros(len(hi), dtype=np.bool_)
        hashes = np.full(len(hi), NO_HASH, dtype=np.uint64)
        parts = _parts_of(hi, stored.count)
        # An ID of a part without a chunk passes the filter only by chance.
        rows = np.flatnonzero(stored.ids[parts])
        if not rows.size:
            return is_there, hashes
        asked = _slices_around(hi[rows], lo[rows], parts[rows], stored)
        read = stored.reader.find_in_slices(stored.bucket, stored.sequence, asked)
        if len(read) < len(asked):
            self._spent_us = max(self._spent_us, _FETCH_US * len(self))
        whole: dict[int, Entries] = {}
        for number, row in enumerate(rows):
            entries = read.get(number)
            if entries is None and number in read:
                continue
            if entries is None or not self._covers(entries, asked, number):
                part = int(parts[row])
                if part not in whole:
                    whole[part] = self._read_parts(part, part + 1)
                entries = whole[part]
            is_there[row], hashes[row] = _find_newest(entries, hi[row], lo[row])
        return is_there, hashes

    def _covers(self, entries: Entries, asked: Slices, number: int) -> bool:
        """Tell whether the ID's newest entry is in the slice if it is in the chunk."""
        start, length = asked.starts[number], asked.lengths[number]
        if len(entries) != length:
            return False
        wanted = (asked.hi[number], asked.lo[number])
        starts_before = not start or _pair(entries, 0) < wanted
        return starts_before and bool(
            start + length == self._stored.ids[asked.chunks[number]]
            or _pair(entries, -1) > wanted
        )


def copy_failed(directory: Path, error: OSError) -> RetryableError:
    """Return the error for a copy of the catalog that could not be written."""
    return RetryableError(
        "SEEN_ID_COPY_FAILED",
        saw=f"The copy of the seen IDs in {directory} could not be written "
        f"({error.strerror}).",
        why="The driver cannot look up the IDs that it has seen.",
        fix="Free space on the disk of the driver's state directory.",
    )


def _parts_of(hi: U64Array, count: int) -> I64Array:
    bits = count.bit_length() - 1
    if not bits:
        return np.zeros(len(hi), dtype=np.int64)
    return (hi >> np.uint64(WORD_BITS - bits)).astype(np.int64)


def _slices_around(
    hi: U64Array, lo: U64Array, parts: I64Array, stored: StoredChunks
) -> Slices:
    """Return where in its chunk each ID should be, if fingerprints are spread evenly.

    The standard deviation of a place among n is at most half of the root of n, and the
    slice reaches 3.4 times that to both sides. One slice in 1,500 is too short; then
    the whole chunk is read, which costs as much as 500 slices.
    """
    ids = stored.ids[parts]
    share = stretched(hi, stored.count) >> HALF_WORD
    places = (share * ids.astype(np.uint64) >> HALF_WORD).astype(np.int64)
    reach = (1.7 * np.sqrt(ids)).astype(np.int64) + 8
    starts = np.maximum(places - reach, 0)
    lengths = np.minimum(places + reach, ids) - starts
    return Slices(chunks=parts, starts=starts, lengths=lengths, hi=hi, lo=lo)


def _pair(entries: Entries, at: int) -> tuple[np.uint64, np.uint64]:
    return entries.hi[at], entries.lo[at]


def _find_newest(
    entries: Entries, hi: np.uint64, lo: np.uint64
) -> tuple[bool, np.uint64]:
    same = np.flatnonzero((entries.hi == hi) & (entries.lo == lo))
    if not same.size:
        return False, np.uint64(NO_HASH)
    return True, entries.payload_hashes[same[-1]]


#: The buckets' own filters check the IDs that pass, so this filter may be small.
_FALSE_POSITIVES = 0.01
_NOTHING = Hits(
    rows=np.empty(0, dtype=np.int64),
    payload_hashes=np.empty(0, dtype=np.uint64),
    buckets=np.empty(0, dtype=np.int64),
    looked_up=0,
)


class _CommonFilter:
    """A filter that several threads fill, and that is used once it is complete."""

    def __init__(self, ids: int) -> None:
        self.bloom = BloomFilter.of_nothing(blocks=blocks_for(ids, _FALSE_POSITIVES))
        self._adding = threading.Lock()

    def add(self, hi: U64Array, lo: U64Array) -> None:
        # If two threads set bits at the same time, a bit and so an ID could be lost.
        with self._adding:
            self.bloom.add(hi, lo)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChunkGroup:
    """Chunks of some buckets; buckets that have expired since are left out.

    Attributes:
        chunks: Chunks of the live buckets, the oldest first.
        common: Filter over all IDs that were fetched.
    """

    chunks: tuple[LazyChunks, ...]
    common: _CommonFilter

    @classmethod
    def over(cls, stored: Sequence[StoredChunks], directory: Path) -> ChunkGroup:
        """Make a group whose chunks are not fetched yet.

        Args:
            stored: The chunks found in Postgres, one object for each bucket.
            directory: On a local disk, for fetched chunks.
        """
        common = _CommonFilter(sum(int(one.ids.sum()) for one in stored))
        oldest_first = sorted(stored, key=lambda one: one.bucket)
        return cls(
            chunks=tuple(
                LazyChunks(one, directory, on_fetched=common.add)
                for one in oldest_first
            ),
            common=common,
        )

    def __len__(self) -> int:
        return sum(map(len, self.chunks))

    def from_bucket(self, live_from_bucket: int) -> ChunkGroup:
        """Return the group without the buckets that have expired."""
        live = (one for one in self.chunks if one.bucket >= live_from_bucket)
        return replace(self, chunks=tuple(live))

    def look_up(self, asked: Asked) -> Hits:
        """Return the rows of the question that were found, and their entries.

        Raises:
            TallyweirError: The chunks could not be read; or ``SEEN_IDS_GONE``.
        """
        rows: I64Array = np.arange(len(asked))
        if all(one.is_fetched for one in self.chunks):
            rows = self.common.bloom.find_possible(asked)
            asked = asked.take(rows)
        found = [_NOTHING]
        for chunks in reversed(self.chunks):
            hits = chunks.look_up(asked)
            found.append(replace(hits, rows=rows[hits.rows]))
            # If an ID is in several buckets, the entry in the latest one counts, so
            # the earlier buckets need not be searched for it.
            is_left = np.ones(len(asked), dtype=np.bool_)
            is_left[hits.rows] = False
            left = np.flatnonzero(is_left)
            rows, asked = rows[left], asked.take(left)
        return Hits(
            rows=np.concatenate([hits.rows for hits in found]),
            payload_hashes=np.concatenate([hits.payload_hashes for hits in found]),
            buckets=np.concatenate([hits.buckets for hits in found]),
            looked_up=sum(hits.looked_up for hits in found),
        )
