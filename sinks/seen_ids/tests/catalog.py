"""A catalog in memory, and rows and runs as tests write them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar
from unittest import mock

import numpy as np
import numpy.typing as npt

from tallyweir.sinks.protocol.catalog_limits import FALSE_POSITIVES
from tallyweir.sinks.protocol.errors import RetryableError
from tallyweir.sinks.seen_ids import stored_chunks
from tallyweir.sinks.seen_ids.bloom_filter import BloomFilter
from tallyweir.sinks.seen_ids.chunk import BucketMerge, Chunk, Entries
from tallyweir.sinks.seen_ids.claim import Candidates
from tallyweir.sinks.seen_ids.ordering import I64Array
from tallyweir.sinks.seen_ids.round_claims import RoundClaims
from tallyweir.sinks.seen_ids.run import Run
from tallyweir.sinks.seen_ids.segment import Columns, SegmentView
from tallyweir.sinks.seen_ids.stored_chunks import Slices, StoredChunks

P = ParamSpec("P")
T = TypeVar("T")
Pair = tuple[int, int]
#: Partition, offset, bucket, fingerprint, payload hash.
Row = tuple[int, int, int, Pair, int]


class AtOnce(Executor):
    """Does what it is given before it returns, so that tests know when."""

    def submit(
        self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except RetryableError as error:
            future.set_exception(error)
        return future


@dataclass(frozen=True, kw_only=True)
class _Merged:
    """The chunks of one bucket."""

    bucket: int
    oldest: int
    sequence: int
    count: int
    chunks: dict[int, Chunk]

    def entries(self) -> Entries:
        return Entries.joined([chunk.entries for chunk in self.chunks.values()])


class Never(Executor):
    """Leaves what it is given undone, as one that others keep busy."""

    def submit(
        self,
        fn: Callable[P, T],  # noqa: ARG002
        /,
        *args: P.args,  # noqa: ARG002
        **kwargs: P.kwargs,  # noqa: ARG002
    ) -> Future[T]:
        return Future()


@contextmanager
def chunks_cost_nothing() -> Iterator[None]:
    """Have chunks fetched whenever there is somebody to fetch them, needed or not."""
    with mock.patch.object(stored_chunks, "_FETCH_US", 0.0):
        yield


class MemoryCatalog:
    """Stands for the table of runs and chunks; what is appended is committed.

    Attributes:
        fetched: How many runs were handed out.
        slices: How many slices of chunks were read.
        wholes: How many times chunks were read whole.
    """

    def __init__(self) -> None:
        self._runs: list[tuple[int, Run]] = []
        self._merged: dict[int, _Merged] = {}
        self.fetched = self.slices = self.wholes = 0

    def append(self, sequence: int, runs: list[Run]) -> None:
        self._runs += [(sequence, run) for run in runs]
        self._runs.sort(key=lambda entry: entry[0])

    def merge(self, bucket: int, through_sequence: int) -> None:
        """Put chunks in the place of a bucket's runs, as the resolver does."""
        runs = [
            (sequence, run)
            for sequence, run in self._runs
            if run.bucket == bucket and sequence <= through_sequence
        ]
        if not runs:
            return
        before = self._merged.get(bucket)
        with tempfile.TemporaryDirectory() as folder:
            merge = BucketMerge(Path(folder), false_positives=FALSE_POSITIVES)
            for sequence, run in runs:
                merge.add(_entries_of(sequence, run))
            if before is not None:
                merge.add(before.entries())
            chunks = {chunk.number: chunk for chunk in merge.chunks()}
        self._merged[bucket] = _Merged(
            bucket=bucket,
            oldest=runs[0][0] if before is None else before.oldest,
            sequence=runs[-1][0],
            count=merge.count,
            chunks=chunks,
        )
        self._runs = [entry for entry in self._runs if entry not in runs]

    def drop(self, bucket: int) -> None:
        """Forget a bucket."""
        self._merged.pop(bucket, None)
        self._runs = [entry for entry in self._runs if entry[1].bucket != bucket]

    def fetch_runs(
        self, *, after_sequence: int, through_sequence: int, live_from_bucket: int
    ) -> Iterator[tuple[int, Run | StoredChunks]]:
        asked = range(after_sequence + 1, through_sequence + 1)
        live = [m for m in self._merged.values() if m.bucket >= live_from_bucket]
        partly: list[tuple[int, Run]] = []
        for merged in live:
            if merged.oldest in asked and merged.sequence in asked:
                yield merged.oldest, self._stored(merged)
            else:
                entries = merged.entries()
                is_asked = np.isin(entries.sequences, asked)
                if is_asked.any():
                    run = _run_of(merged.bucket, entries.take(is_asked).newest())
                    partly.append((max(merged.oldest, asked.start), run))
        runs = [
            entry
            for entry in self._runs
            if entry[0] in asked and entry[1].bucket >= live_from_bucket
        ]
        for entry in sorted([*partly, *runs], key=lambda entry: entry[0]):
            self.fetched += 1
            yield entry

    def find_in_slices(
        self, bucket: int, sequence: int, asked: Slices
    ) -> dict[int, Entries | None]:
        merged = self._merged.get(bucket)
        self.slices += len(asked)
        if merged is None or merged.sequence != sequence:
            return {}
        return {
            number: _slice_with(merged.chunks[chunk].entries, asked, number)
            for number, chunk in enumerate(asked.chunks.tolist())
            if chunk in merged.chunks
        }

    def read_entries(
        self, bucket: int, through_sequence: int, first_hi: int, last_hi: int
    ) -> Entries:
        self.wholes += 1
        merged = self._merged.get(bucket)
        if merged is None:
            return _entries_of(0, run_of([(0, 0)])).take(slice(0))
        entries = merged.entries()
        return entries.take(
            (entries.hi >= np.uint64(first_hi))
            & (entries.hi <= np.uint64(last_hi))
            & (entries.sequences <= through_sequence)
        )

    def close(self) -> None:
        """There is nothing to close."""

    def _stored(self, merged: _Merged) -> StoredChunks:
        shares = {number: chunk.filter for number, chunk in merged.chunks.items()}
        ids = np.zeros(merged.count, dtype=np.int64)
        for number, chunk in merged.chunks.items():
            ids[number] = len(chunk.entries)
        return StoredChunks(
            bucket=merged.bucket,
            sequence=merged.sequence,
            count=merged.count,
            ids=ids,
            bloom=BloomFilter.joined(shares, count=merged.count),
            reader=self,
        )


def _entries_of(sequence: int, run: Run) -> Entries:
    hashes = run.payload_hashes
    return Entries(
        hi=run.fingerprints[:, 0],
        lo=run.fingerprints[:, 1],
        payload_hashes=np.zeros(len(run), np.uint64) if hashes is None else hashes,
        sequences=np.full(len(run), sequence, dtype=np.int64),
    )


def _run_of(bucket: int, entries: Entries) -> Run:
    return Run(
        bucket=bucket,
        fingerprints=np.column_stack([entries.hi, entries.lo]),
        payload_hashes=entries.payload_hashes,
    )


def _slice_with(chunk: Entries, asked: Slices, number: int) -> Entries | None:
    """Return a slice of a chunk unless the ID that is asked of it is not in the chunk.

    Where the slice has not both an entry before the ID and one behind it, that is only
    certain at the chunk's own ends.
    """
    start, end = asked.starts[number], asked.starts[number] + asked.lengths[number]
    entries = chunk.take(slice(start, end))
    pairs = list(zip(entries.hi.tolist(), entries.lo.tolist(), strict=True))
    wanted = (int(asked.hi[number]), int(asked.lo[number]))
    may_be_before = start > 0 and wanted <= pairs[0]
    may_be_behind = end < len(chunk) and wanted >= pairs[-1]
    return entries if wanted in pairs or may_be_before or may_be_behind else None


def run_of(
    pairs: list[Pair], *, bucket: int = 0, payload_hash: int | None = None
) -> Run:
    """Return a run of some fingerprints, in any order."""
    hashes = None
    if payload_hash is not None:
        hashes = np.full(len(pairs), payload_hash, dtype=np.uint64)
    return Run(
        bucket=bucket,
        fingerprints=np.array(sorted(pairs), dtype=np.uint64),
        payload_hashes=hashes,
    )


def view_of(*runs: Run, live_from_bucket: int = 0) -> SegmentView:
    """Show some runs, the oldest first, without a cache."""
    parts = tuple(Columns.of_run(run) for run in runs)
    return SegmentView(parts=parts, live_from_bucket=live_from_bucket)


def candidates_of(
    rows: Sequence[Row],
    *,
    keep_hashes: bool = True,
    only_corrects: Sequence[bool] | None = None,
) -> tuple[Candidates, I64Array]:
    """Return rows as they may ask, and where each of them was written."""
    pairs = np.array([row[3] for row in rows], dtype=np.uint64).reshape(-1, 2)
    hashes = np.array([row[4] for row in rows], dtype=np.uint64)
    written = Candidates(
        place=np.array([row[0] for row in rows], dtype=np.int64),
        offset=np.array([row[1] for row in rows], dtype=np.int64),
        bucket=np.array([row[2] for row in rows], dtype=np.int64),
        hi=np.ascontiguousarray(pairs[:, 0]),
        lo=np.ascontiguousarray(pairs[:, 1]),
        payload_hashes=hashes if keep_hashes else None,
        only_corrects=None
        if only_corrects is None
        else np.array(only_corrects, dtype=np.bool_),
    )
    order = written.order()
    return written.take(order), order


def ask(
    claims: RoundClaims,
    rows: Sequence[Row],
    *,
    keep_hashes: bool = True,
    only_corrects: Sequence[bool] | None = None,
) -> list[int]:
    """Ask in the order that is needed; tell the classes of the rows as written."""
    asked, order = candidates_of(
        rows, keep_hashes=keep_hashes, only_corrects=only_corrects
    )
    return as_written(claims.ask(asked).classes, order)


def as_written(answer: npt.NDArray[Any], order: I64Array) -> list[int]:
    """Bring one column of an answer into the order in which rows were written."""
    written = np.empty_like(answer)
    written[order] = answer
    found: list[int] = written.tolist()
    return found
