"""The driver's copy of the seen-ID catalog: sorted segments in files of its own.

Postgres is the authority; the copy is made from it when a driver starts and goes with
the driver. Each batch adds a segment of the IDs that the one before it has committed;
what the holder of a batch's round knows of it (held_batches.py) is taken as it is, and
stays in memory until it is merged.
Segments are merged behind the batches' backs, in a thread of their own: an ID is
rewritten about log4(N / batch) times, and a look-up searches about as many segments.

Of buckets that were merged in Postgres only the filters are fetched at first. Chunks
follow once so much was asked of a bucket that to fetch them would have cost no more
(stored_chunks.py), in the same thread and a piece beside each batch; they are asked as
one when all are here (chunk_group.py).

Segments follow each other by sequence. Buckets are a column of them and not folders: a
batch of old events touches hundreds of buckets, and a search costs by the number of
segments. IDs of expired buckets are invisible at once; they leave the disk with the
next merge of their segment or when the whole segment has expired.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sinks.seen_ids.bloom_filter import FALSE_POSITIVES
from sinks.seen_ids.chunk_group import ChunkGroup
from sinks.seen_ids.run import Run
from sinks.seen_ids.segment import Columns, SegmentView, write_merged
from sinks.seen_ids.stored_chunks import (
    ChunkReader,
    StoredChunks,
    copy_failed,
)

_BEFORE_ANY_SEQUENCE = -1
_BEFORE_ANY_BUCKET = -(2**63)
# IDs held in memory before they become a file: of a cold copy, or of one batch.
_CHUNK_IDS = 2_000_000
# Segments from one on are merged when together they hold this many times its IDs.
_GROWTH = 4


#: IDs in a run, among the chunks of a bucket, or in the very columns of a segment.
Fetched = Run | StoredChunks | Columns


class RunSource(Protocol):
    """The committed IDs of the catalog; the adapter of the home database has one."""

    def fetch_runs(
        self,
        *,
        after_sequence: int,
        through_sequence: int,
        live_from_bucket: int,
    ) -> Iterable[tuple[int, Fetched]]:
        """Stream the IDs with ``after_sequence < sequence <= through_sequence``.

        Yields each ID of these batches with ``bucket >= live_from_bucket`` once, and
        no other: in a run, or among the chunks of a bucket. Chunks come before the
        runs, and what comes of one bucket in order of the batches. With it comes the
        oldest batch that may be in it. Columns hold all of one batch, whose expired
        IDs may be among them.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Segment:
    """Some IDs, and the newest bucket of any of them."""

    columns: Columns
    last_bucket: int

    def __len__(self) -> int:
        return len(self.columns)

    @classmethod
    def of(cls, columns: Columns) -> _Segment:
        last = int(columns.buckets.max()) if len(columns) else _BEFORE_ANY_BUCKET
        return cls(columns=columns, last_bucket=last)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Merging:
    """The segments ``[first : first + count]``, on their way to be one."""

    first: int
    count: int
    merged: Future[_Segment]


class CatalogCopy:
    """One pipeline's copy under one claim; one thread at a time asks it.

    Args:
        directory: On a local disk. Files in it have no names, so nothing is left of
            them when the process ends, in whatever way.
        merger: Runs merges, one at a time, and fetches pieces of chunks between them.
        false_positives: The share of new IDs that filters may take for seen ones; of
            what is merged in Postgres, the merge has been told.
    """

    def __init__(
        self,
        directory: Path,
        merger: Executor,
        *,
        false_positives: float = FALSE_POSITIVES,
    ) -> None:
        self._directory = directory
        self._merger = merger
        self._false_positives = false_positives
        self._chunks: list[ChunkGroup] = []
        self._readers: list[ChunkReader] = []
        self._fetching: Future[bool] | None = None
        self._segments: list[_Segment] = []
        self._through = _BEFORE_ANY_SEQUENCE
        self._live_from = _BEFORE_ANY_BUCKET
        self._merging: _Merging | None = None

    def view(
        self, *, catalog: RunSource, live_from_bucket: int, through_sequence: int
    ) -> SegmentView:
        """Show the live IDs as they were after one batch.

        What is not here yet is fetched and kept. IDs of later batches are never
        visible, also when an earlier batch is asked for: a batch that is run again
        must not find itself. That makes the copy begin anew.

        Args:
            catalog: Where committed runs come from.
            live_from_bucket: Older buckets have expired.
            through_sequence: The newest committed batch to show.

        Raises:
            RetryableError: ``SEEN_ID_COPY_FAILED``: the disk is full or broken.
            TallyweirError: What the catalog has raised; the copy is as it was.

        Crash:
            Nothing outlives the process.
        """
        if through_sequence < self._through or live_from_bucket < self._live_from:
            # What is being merged meanwhile is nobody's any more.
            self._segments, self._merging, self._chunks = [], None, []
            self._through = _BEFORE_ANY_SEQUENCE
        self._live_from = live_from_bucket
        self._take_merged()
        self._advance(catalog, through_sequence)
        self._merge_behind()
        self._fetch_behind()
        return SegmentView(
            parts=(*self._chunks, *(one.columns for one in self._segments)),
            live_from_bucket=live_from_bucket,
        )

    def close(self) -> None:
        """Let go of what reading chunks takes; nobody looks anything up any more."""
        for reader in self._readers:
            reader.close()

    def _advance(self, catalog: RunSource, through_sequence: int) -> None:
        """Take what was committed since; so many IDs at a time become a segment."""
        chunks: list[StoredChunks] = []
        segments: list[_Segment] = []
        pending: list[Columns] = []
        pending_ids = 0
        for fetched in self._fetch(catalog, self._through, through_sequence):
            if isinstance(fetched, StoredChunks):
                chunks.append(fetched)
                if fetched.reader not in self._readers:
                    self._readers.append(fetched.reader)
                continue
            if isinstance(fetched, Columns):
                if pending:
                    segments.append(self._write(pending))
                    pending, pending_ids = [], 0
                # What is large is not kept in memory until it is merged.
                is_small = len(fetched) < _CHUNK_IDS
                segments.append(
                    _Segment.of(fetched) if is_small else self._write([fetched])
                )
                continue
            pending.append(Columns.of_run(fetched))
            pending_ids += len(fetched)
            if pending_ids >= _CHUNK_IDS:
                segments.append(self._write(pending))
                pending, pending_ids = [], 0
        if pending:
            segments.append(self._write(pending))
        if chunks:
            self._chunks.append(ChunkGroup.over(chunks, self._directory))
        self._segments += segments
        self._through = through_sequence

    def _fetch(self, catalog: RunSource, after: int, through: int) -> Iterator[Fetched]:
        last = after
        for sequence, fetched in catalog.fetch_runs(
            after_sequence=after,
            through_sequence=through,
            live_from_bucket=self._live_from,
        ):
            assert after < sequence <= through, "IDs that were not asked for"
            if isinstance(fetched, Run | StoredChunks):
                assert fetched.bucket >= self._live_from
            if isinstance(fetched, Run | Columns):
                assert last <= sequence, "runs out of order"
                last = sequence
            yield fetched

    def _write(self, sources: Sequence[Columns]) -> _Segment:
        return _write(self._directory, sources, self._live_from, self._false_positives)

    def _fetch_behind(self) -> None:
        """Have a piece of the chunks fetched that are worth it and not here yet.

        One beside each batch, because a driver that is behind cannot spare more: all of
        them at once would take a third of what it can do.
        """
        live = (group.from_bucket(self._live_from) for group in self._chunks)
        self._chunks = [group for group in live if group.chunks]
        if self._fetching is not None and not self._fetching.done():
            return
        chunks = (one for group in self._chunks for one in group.chunks)
        awaited = [one for one in chunks if one.awaits_fetching]
        if awaited:
            # IDs are looked up where they are stored for as long as this fails.
            newest = max(awaited, key=lambda one: one.bucket)
            self._fetching = self._merger.submit(newest.fetch_some)

    def _merge_behind(self) -> None:
        """Have the last segments merged that have outgrown one before them."""
        if self._merging is not None:
            return
        self._segments = [
            one for one in self._segments if one.last_bucket >= self._live_from
        ]
        first = _count_to_keep([len(one) for one in self._segments])
        outgrown = self._segments[first:]
        if len(outgrown) > 1:
            sources = [one.columns for one in outgrown]
            merged = self._merger.submit(
                _write,
                self._directory,
                sources,
                self._live_from,
                self._false_positives,
            )
            self._merging = _Merging(first=first, count=len(outgrown), merged=merged)

    def _take_merged(self) -> None:
        merging = self._merging
        if merging is None or not merging.merged.done():
            return
        self._merging = None
        end = merging.first + merging.count
        self._segments[merging.first : end] = [merging.merged.result()]


def _write(
    directory: Path,
    sources: Sequence[Columns],
    live_from_bucket: int,
    false_positives: float,
) -> _Segment:
    try:
        columns = write_merged(
            directory, sources, live_from_bucket, false_positives=false_positives
        )
    except OSError as error:
        raise copy_failed(directory, error) from error
    return _Segment.of(columns)


def _count_to_keep(sizes: list[int]) -> int:
    """Return how many of the first segments stay as they are.

    Every segment that stays, but the last, holds more than a quarter of all IDs from
    itself on, so a catalog of N times a batch has at most log(N) to the base 4/3
    segments.
    """
    total = sum(sizes)
    for at, size in enumerate(sizes[:-1]):
        if total >= _GROWTH * size:
            return at
        total -= size
    return len(sizes)
