"""A segment: IDs of a range of batches, sorted, in one file that is mapped, not read.

A file is four columns one after the other, native byte order, 8 bytes a value: ``hi``,
``lo``, payload hash (0: none kept), bucket. A search touches ``hi``; the other columns
are looked at only where ``hi`` is met, which a new ID practically never does.

Files are named at random, written once and never changed. Nothing is synced to disk:
the manifest holds each file's size and checksum, and what does not match is made anew.
"""

from __future__ import annotations

import mmap
import uuid
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sinks.seen_ids.claim import NO_HASH, Found
from sinks.seen_ids.ordering import (
    BoolArray,
    I64Array,
    U64Array,
    fingerprint_order,
    last_of_each,
)
from sinks.seen_ids.run import Run

BYTES_PER_ID = 32


class SegmentDamagedError(Exception):
    """A file is missing or is not what the manifest says; internal to the cache."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Columns:
    """IDs sorted by (hi, lo), no pair twice, as four columns."""

    hi: U64Array
    lo: U64Array
    payload_hashes: U64Array
    buckets: I64Array

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

    def find(self, hi: U64Array, lo: U64Array) -> tuple[I64Array, I64Array]:
        """Return the rows of the query that are here, and where they are."""
        if not len(self):
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        left = np.searchsorted(self.hi, hi)
        met = self.hi[np.minimum(left, len(self) - 1)] == hi
        rows = np.flatnonzero(met)
        if not rows.size:
            return rows, rows
        begin = left[rows]
        end = np.searchsorted(self.hi, hi[rows], side="right")
        at = self._lower_bound_of_lo(begin, end, lo[rows])
        inside = at < end
        rows, at = rows[inside], at[inside]
        same = self.lo[at] == lo[rows]
        return rows[same], at[same]

    def _lower_bound_of_lo(
        self, begin: I64Array, end: I64Array, lo: U64Array
    ) -> I64Array:
        """Search ``lo`` among the rows of equal ``hi``, for every query at once."""
        open_end = end
        while (begin < open_end).any():
            middle = (begin + open_end) // 2
            # A search that is over may stand one past the last row.
            less = self.lo[np.minimum(middle, len(self) - 1)] < lo
            less &= begin < open_end
            begin, open_end = (
                np.where(less, middle + 1, begin),
                np.where(less, open_end, np.minimum(middle, open_end)),
            )
        return begin


def merge(sources: Sequence[Columns], live_from_bucket: int) -> Columns:
    """Join sorted columns, without the IDs of buckets that have expired.

    Args:
        sources: The oldest first. Of an ID that is in several, as one that was
            corrected is, the newest entry stays: none of the others outlives it.
        live_from_bucket: Older buckets have expired.
    """
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentEntry:
    """A segment as the manifest names it.

    Attributes:
        name: File name in the shard's folder.
        ids: Rows in the file.
        crc32: Checksum of the whole file.
        last_sequence: The newest batch whose IDs may be in it; older segments end
            before its first one.
        last_bucket: The newest bucket in it.
    """

    name: str
    ids: int
    crc32: int
    last_sequence: int
    last_bucket: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Segment:
    """A mapped file and its entry."""

    entry: SegmentEntry
    columns: Columns


def write_segment(folder: Path, columns: Columns, last_sequence: int) -> Segment:
    """Write sorted IDs to a new file that nothing refers to yet, and map it.

    Crash:
        Before the caller replaces the manifest, the file, whole or half, is unknown
        to every reader; the next writer of the shard removes it.
    """
    name = f"{last_sequence}-{uuid.uuid4().hex}.segment"
    crc32 = 0
    with (folder / name).open("xb") as file:
        for column in _in_file_order(columns):
            view = np.ascontiguousarray(column).data.cast("B")
            crc32 = zlib.crc32(view, crc32)
            file.write(view)
    entry = SegmentEntry(
        name=name,
        ids=len(columns),
        crc32=crc32,
        last_sequence=last_sequence,
        last_bucket=int(columns.buckets.max()),
    )
    return Segment(entry=entry, columns=_columns_in(_mapped(folder, entry), entry.ids))


def open_segment(folder: Path, entry: SegmentEntry) -> Segment:
    """Map a file after checking every byte of it.

    Raises:
        SegmentDamagedError: It is missing, or not what was written.
    """
    mapped = _mapped(folder, entry)
    if zlib.crc32(mapped) != entry.crc32:
        raise SegmentDamagedError(entry.name)
    return Segment(entry=entry, columns=_columns_in(mapped, entry.ids))


def _in_file_order(columns: Columns) -> Iterable[U64Array | I64Array]:
    return (columns.hi, columns.lo, columns.payload_hashes, columns.buckets)


def _mapped(folder: Path, entry: SegmentEntry) -> mmap.mmap:
    try:
        with (folder / entry.name).open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (FileNotFoundError, ValueError) as exc:  # ValueError: the file is empty
        raise SegmentDamagedError(entry.name) from exc
    if len(mapped) != entry.ids * BYTES_PER_ID:
        raise SegmentDamagedError(entry.name)
    return mapped


def _columns_in(mapped: mmap.mmap, ids: int) -> Columns:
    hi, lo, payload_hashes = np.frombuffer(
        mapped, dtype=np.uint64, count=3 * ids
    ).reshape(3, ids)
    buckets = np.frombuffer(mapped, dtype=np.int64, offset=24 * ids)
    return Columns(hi=hi, lo=lo, payload_hashes=payload_hashes, buckets=buckets)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SegmentView:
    """The live IDs of one shard up to one batch; stays valid when files are removed.

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
