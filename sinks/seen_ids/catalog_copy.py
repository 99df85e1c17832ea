"""The driver's copy of the seen-ID catalog: sorted segments in files of its own.

Postgres is the authority; the driver makes the copy from it at its start, and the copy
ends with the driver. Each batch adds a segment of the IDs that the one before it has
committed. A separate thread merges segments while batches run: an ID is rewritten about
log4(N / batch) times, and a look-up searches about as many segments.

For buckets that were merged in Postgres, the copy fetches only the filters at first. It
fetches a bucket's chunks once look-ups in them have cost as much as fetching would
(``stored_chunks``). The same thread fetches them, one piece per batch.

Segments follow each other by sequence. The bucket is a column of a segment, not a
folder: a batch of old events touches hundreds of buckets, and the cost of a search
grows with the number of segments. IDs of expired buckets are invisible at once; they
leave the disk with the next merge of their segment, or when the whole segment has
expired.

``HeldBatches`` takes the newest batches from the holder's memory, where they stay until
they are merged. The holder gave these IDs away itself, so it need not read them again.
A round is approved when the number of filed IDs equals the number of held IDs
(``claim_holder``), and each filed ID is held. So both are the same IDs, with the same
payload hashes and buckets, and they have one order. A publish moves all filed IDs or
none.

- A batch that was refused is staged again, in a round of its own. When that round
  begins, the holder forgets the IDs of this batch and of the one after it.
- If the answer to a batch's COMMIT was lost, the same votes are published again under
  the same claim, or the driver starts over with another holder.
- No other batch has the same number: another driver that publishes claims a newer
  epoch, and the database then refuses all batches planned under this one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tallyweir.sinks.protocol.catalog_limits import FALSE_POSITIVES
from tallyweir.sinks.seen_ids.run import Run
from tallyweir.sinks.seen_ids.segment import Columns, SegmentView, write_merged
from tallyweir.sinks.seen_ids.stored_chunks import (
    ChunkGroup,
    ChunkReader,
    StoredChunks,
    copy_failed,
)

_BEFORE_ANY_SEQUENCE = -1
_BEFORE_ANY_BUCKET = -(2**63)
# IDs held in memory before they become a file, in a cold copy or from one batch.
_CHUNK_IDS = 2_000_000
# A segment and all later ones are merged when they hold this many times its IDs.
_GROWTH = 4


#: IDs as a run, as the chunks of a bucket, or as ready columns of a segment.
Fetched = Run | StoredChunks | Columns


class RunSource(Protocol):
    """Source of the catalog's committed IDs; the home database's adapter has one."""

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
        runs, and the pieces of one bucket come in the order of the batches. Each piece
        comes with the oldest batch that may be in it. Columns hold all IDs of one
        batch, maybe with expired ones.
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
    """The segments ``[first : first + count]``, which are being merged into one."""

    first: int
    count: int
    merged: Future[_Segment]


class CatalogCopy:
    """One pipeline's copy under one claim; one thread at a time uses it.

    Args:
        directory: On a local disk. Files in it have no names, so they vanish when the
            process ends, in whatever way.
        merger: Runs merges, one at a time, and fetches pieces of chunks between them.
        false_positives: The share of new IDs that filters may take for seen ones. The
            merge in Postgres gets its share separately.
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

        The copy fetches and keeps the IDs that it does not have yet. IDs of later
        batches are never visible: a batch that is run again must not find itself. So a
        question for an earlier batch makes the copy start over.

        Args:
            catalog: Where committed runs come from.
            live_from_bucket: Older buckets have expired.
            through_sequence: The newest committed batch to show.

        Raises:
            RetryableError: ``SEEN_ID_COPY_FAILED``: the disk is full or broken.
            TallyweirError: An error of the catalog; the copy is unchanged.

        Crash:
            Nothing outlives the process.
        """
        if through_sequence < self._through or live_from_bucket < self._live_from:
            # The result of a running merge is no longer wanted.
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
        """Close the readers of chunks; no look-up may follow."""
        for reader in self._readers:
            reader.close()

    def _advance(self, catalog: RunSource, through_sequence: int) -> None:
        """Fetch newly committed IDs; each ``_CHUNK_IDS`` of them become a segment."""
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
                # Large columns go to a file at once instead of waiting for a merge.
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
        """Start to fetch one piece of the chunks that are worth it and not here yet.

        Each batch fetches one piece, because a driver that is behind cannot spare more:
        fetching all at once would take a third of its throughput.
        """
        live = (group.from_bucket(self._live_from) for group in self._chunks)
        self._chunks = [group for group in live if group.chunks]
        if self._fetching is not None and not self._fetching.done():
            return
        chunks = (one for group in self._chunks for one in group.chunks)
        awaited = [one for one in chunks if one.awaits_fetching]
        if awaited:
            # While this fails, IDs are looked up in Postgres.
            newest = max(awaited, key=lambda one: one.bucket)
            self._fetching = self._merger.submit(newest.fetch_some)

    def _merge_behind(self) -> None:
        """Start to merge the last segments, if they have outgrown one before them."""
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

    Every segment that stays, except the last, holds more than a quarter of the IDs in
    itself and all later ones. So a catalog of N batches of equal size has at most
    log(N) to the base 4/3 segments.
    """
    total = sum(sizes)
    for at, size in enumerate(sizes[:-1]):
        if total >= _GROWTH * size:
            return at
        total -= size
    return len(sizes)


class HeldBatches:
    """The catalog, with the newest batches taken from memory.

    Args:
        held: IDs of batches that were published, by sequence.
        catalog: Source of every batch.
    """

    def __init__(self, held: Mapping[int, Columns], catalog: RunSource) -> None:
        self._held = held
        self._catalog = catalog

    def fetch_runs(
        self, *, after_sequence: int, through_sequence: int, live_from_bucket: int
    ) -> Iterator[tuple[int, Fetched]]:
        """Stream as ``RunSource.fetch_runs``; held batches may have expired IDs.

        Only held batches at the end of the range are used. The database sends merged
        IDs before any run, so a held batch in the middle would come in the wrong order.
        """
        last_fetched = through_sequence
        while last_fetched > after_sequence and last_fetched in self._held:
            last_fetched -= 1
        if last_fetched > after_sequence:
            yield from self._catalog.fetch_runs(
                after_sequence=after_sequence,
                through_sequence=last_fetched,
                live_from_bucket=live_from_bucket,
            )
        for sequence in range(last_fetched + 1, through_sequence + 1):
            if len(self._held[sequence]):
                yield sequence, self._held[sequence]
