"""The driver's copy of the seen-ID catalog: sorted segments in files of its own.

Postgres is the authority; the copy is made from it when a driver starts and goes with
the driver. Each batch adds a segment of the IDs that the one before it has committed.
Segments are merged behind the batches' backs, in a thread of their own: an ID is
rewritten about log4(N / batch) times, and a look-up searches about as many segments.

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

from sinks.protocol.errors import RetryableError
from sinks.seen_ids.run import Run
from sinks.seen_ids.segment import Columns, SegmentView, write_merged

_BEFORE_ANY_SEQUENCE = -1
_BEFORE_ANY_BUCKET = -(2**63)
# IDs held in memory while a cold copy is filled, before they become a segment.
_CHUNK_IDS = 2_000_000
# Segments from one on are merged when together they hold this many times its IDs.
_GROWTH = 4


class RunSource(Protocol):
    """The committed runs of the catalog; the adapter of the home database has one."""

    def fetch_runs(
        self,
        *,
        after_sequence: int,
        through_sequence: int,
        live_from_bucket: int,
    ) -> Iterable[tuple[int, Run]]:
        """Stream the runs with their sequences, in order of the sequence.

        Yields every committed run with ``after_sequence < sequence <=
        through_sequence`` and ``bucket >= live_from_bucket``, and no other.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Segment:
    """Some IDs, and the newest bucket of any of them."""

    columns: Columns
    last_bucket: int

    def __len__(self) -> int:
        return len(self.columns)


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
        merger: Runs merges, one at a time.
    """

    def __init__(self, directory: Path, merger: Executor) -> None:
        self._directory = directory
        self._merger = merger
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
            TallyweirError: What the catalog has raised; what came before it is kept.

        Crash:
            Nothing outlives the process.
        """
        if through_sequence < self._through or live_from_bucket < self._live_from:
            # What is being merged meanwhile is nobody's any more.
            self._segments, self._merging = [], None
            self._through = _BEFORE_ANY_SEQUENCE
        self._live_from = live_from_bucket
        self._take_merged()
        self._advance(catalog, through_sequence)
        self._merge_behind()
        return SegmentView(
            parts=tuple(one.columns for one in self._segments),
            live_from_bucket=live_from_bucket,
        )

    def _advance(self, catalog: RunSource, through_sequence: int) -> None:
        """Fetch what was committed since; a chunk at a time becomes a segment."""
        pending: list[Columns] = []
        last = self._through
        for sequence, columns in self._runs_after(catalog, last, through_sequence):
            if sequence != last and sum(map(len, pending)) >= _CHUNK_IDS:
                self._append(pending, last)
                pending = []
            pending.append(columns)
            last = sequence
        self._append(pending, through_sequence)

    def _runs_after(
        self, catalog: RunSource, after: int, through: int
    ) -> Iterator[tuple[int, Columns]]:
        last = after
        for sequence, run in catalog.fetch_runs(
            after_sequence=after,
            through_sequence=through,
            live_from_bucket=self._live_from,
        ):
            assert after < sequence <= through, "a run not asked for"
            assert last <= sequence, "runs out of order"
            assert run.bucket >= self._live_from
            last = sequence
            yield sequence, Columns.of_run(run)

    def _append(self, pending: list[Columns], through_sequence: int) -> None:
        if pending:
            segment = _write(self._directory, pending, self._live_from)
            self._segments.append(segment)
        self._through = through_sequence

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
                _write, self._directory, sources, self._live_from
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
    directory: Path, sources: Sequence[Columns], live_from_bucket: int
) -> _Segment:
    try:
        columns = write_merged(directory, sources, live_from_bucket)
    except OSError as error:
        raise RetryableError(
            "SEEN_ID_COPY_FAILED",
            saw=f"The copy of the seen IDs in {directory} could not be written "
            f"({error.strerror}).",
            why="The IDs seen before cannot be looked up.",
            fix="Make room on the disk of the driver's state directory.",
        ) from error
    last = int(columns.buckets.max()) if len(columns) else _BEFORE_ANY_BUCKET
    return _Segment(columns=columns, last_bucket=last)


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
