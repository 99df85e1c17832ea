"""The node's copy of the seen-ID catalog: mapped files that all its processes share.

Postgres is the authority; whatever is here may be deleted, damaged or out of date, and
is then fetched again. One folder per epoch and shard holds a manifest, the segments
that it names, and a lock file. The rules:

- a manifest with ``through_sequence`` stands for all live IDs of the batches up to and
  including that one, and for none of a later one;
- segments follow each other by sequence and do not overlap, so the IDs as of an earlier
  batch are some of the first segments and a few runs fetched again;
- manifests are replaced by rename; files they no longer name are removed afterwards;
- a writer holds a ``flock``, which the kernel drops with the process. Who cannot get it
  in time reads without writing.

Buckets are a column of the segments, not folders: a batch of old events touches
hundreds of buckets, and a search costs by the number of segments. IDs of expired
buckets are invisible at once; they leave the disk with the next merge of their segment
or when the whole segment has expired.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Protocol

from sinks.protocol.errors import RetryableError
from sinks.seen_ids.manifest import (
    BEFORE_ANY_SEQUENCE,
    LOCK_NAME,
    Manifest,
    read_manifest,
    replace_manifest,
)
from sinks.seen_ids.run import Run
from sinks.seen_ids.segment import (
    Columns,
    Segment,
    SegmentDamagedError,
    SegmentView,
    merge,
    open_segment,
    write_segment,
)

# IDs held in memory while a cold cache is filled, before they become a segment.
_CHUNK_IDS = 2_000_000
# Segments from one on are merged when together they hold this many times its IDs: an
# ID is rewritten about log4(N / batch) times, and about as many segments are searched.
_GROWTH = 4
_LOCK_WAIT_S = 60.0
_LOCK_POLL_S = 0.01
_ATTEMPTS_MAX = 5


class RunSource(Protocol):
    """The committed runs of the catalog; the adapter of the home database has one."""

    def fetch_runs(
        self,
        *,
        shard: int,
        after_sequence: int,
        through_sequence: int,
        live_from_bucket: int,
    ) -> Iterable[tuple[int, Run]]:
        """Stream the runs of a shard with their sequences, in order of the sequence.

        Yields every committed run with ``after_sequence < sequence <=
        through_sequence`` and ``bucket >= live_from_bucket``, and no other.
        """
        ...


class SegmentCache:
    """The node-local cache of one pipeline under one epoch.

    Keep one object per process: it remembers which files it has checked.

    Args:
        directory: Folder of the pipeline on a local disk of the node.
        epoch_key: Names the claim of the epoch, and no other claim ever: it must hold
            something random, because a database restored from a backup hands out the
            same epoch and the same sequences again, for other batches.
    """

    def __init__(self, directory: Path, epoch_key: str) -> None:
        assert Path(epoch_key).name == epoch_key, "an epoch key is one path component"
        self._directory = directory
        self._epoch_key = epoch_key
        self._opened: dict[int, tuple[Segment, ...]] = {}

    def view(
        self,
        *,
        shard: int,
        catalog: RunSource,
        live_from_bucket: int,
        through_sequence: int,
    ) -> SegmentView:
        """Show the live IDs of a shard as they were after one batch.

        What the node does not have yet is fetched and kept for the next caller. IDs of
        batches after ``through_sequence`` are never visible, whatever other tasks have
        fetched: a batch that is run again must not find itself.

        Args:
            shard: The shard to show.
            catalog: Where committed runs come from.
            live_from_bucket: Older buckets have expired.
            through_sequence: The newest committed batch to show.

        Raises:
            RetryableError: ``SEEN_ID_CACHE_UNSTABLE``: the folder kept vanishing.

        Crash:
            At any point: the manifest in place, old or new, names whole files only.
        """
        folder = self._directory / self._epoch_key / f"shard-{shard:05d}"
        wanted = _Wanted(
            shard=shard,
            catalog=catalog,
            live_from_bucket=live_from_bucket,
            through_sequence=through_sequence,
        )
        for _ in range(_ATTEMPTS_MAX):
            try:
                folder.mkdir(parents=True, exist_ok=True)
                with _locked(folder / LOCK_NAME) as is_writer:
                    parts = self._parts(folder, wanted, is_writer=is_writer)
            except (FileNotFoundError, SegmentDamagedError):
                # The folder was deleted under our hands: begin again without it.
                continue
            return SegmentView(parts=parts, live_from_bucket=live_from_bucket)
        raise RetryableError(
            "SEEN_ID_CACHE_UNSTABLE",
            saw=f"The folder {folder} vanished {_ATTEMPTS_MAX} times while in use.",
            why="The IDs seen before cannot be looked up.",
            fix="Keep other programs from cleaning the cache of a live epoch.",
        )

    def remove_other_epochs(self) -> None:
        """Delete what other epochs left; one that still works begins anew."""
        if self._directory.is_dir():
            for folder in self._directory.iterdir():
                if folder.name != self._epoch_key:
                    shutil.rmtree(folder, ignore_errors=True)

    def _parts(
        self, folder: Path, wanted: _Wanted, *, is_writer: bool
    ) -> tuple[Columns, ...]:
        manifest, segments = self._load(folder, wanted.shard)
        is_ahead = manifest.through_sequence > wanted.through_sequence
        is_swept = manifest.live_from_bucket > wanted.live_from_bucket
        if is_ahead or is_swept or not is_writer:
            return _parts_as_of(wanted, () if is_swept else segments)
        if manifest.through_sequence < wanted.through_sequence:
            segments = _advance(folder, wanted, manifest, segments)
        self._opened[wanted.shard] = segments
        return tuple(segment.columns for segment in segments)

    def _load(self, folder: Path, shard: int) -> tuple[Manifest, tuple[Segment, ...]]:
        """Open what the manifest names; anything missing or damaged means nothing."""
        checked = {part.entry: part for part in self._opened.get(shard, ())}
        try:
            manifest = read_manifest(folder)
            segments = tuple(
                checked.get(entry) or open_segment(folder, entry)
                for entry in manifest.segments
            )
        except SegmentDamagedError:
            return Manifest(), ()
        return manifest, segments


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Wanted:
    """The arguments of one ``view``."""

    shard: int
    catalog: RunSource
    live_from_bucket: int
    through_sequence: int

    def runs_after(self, sequence: int) -> Iterator[tuple[int, Columns]]:
        """Yield the runs that are wanted beyond ``sequence``, in order."""
        last = sequence
        for of_run, run in self.catalog.fetch_runs(
            shard=self.shard,
            after_sequence=sequence,
            through_sequence=self.through_sequence,
            live_from_bucket=self.live_from_bucket,
        ):
            assert sequence < of_run <= self.through_sequence, "a run not asked for"
            assert last <= of_run, "runs out of order"
            assert run.shard == self.shard
            assert run.bucket >= self.live_from_bucket
            last = of_run
            yield of_run, Columns.of_run(run)


def _parts_as_of(wanted: _Wanted, segments: tuple[Segment, ...]) -> tuple[Columns, ...]:
    """Show an earlier batch, or read without writing: nothing is kept.

    The prefix of the segments that is old enough, and all later runs fetched again.
    """
    usable = tuple(
        takewhile(
            lambda part: part.entry.last_sequence <= wanted.through_sequence, segments
        )
    )
    after = usable[-1].entry.last_sequence if usable else BEFORE_ANY_SEQUENCE
    fetched = [columns for _, columns in wanted.runs_after(after)]
    parts = [part.columns for part in usable]
    if fetched:
        parts.append(merge(fetched, wanted.live_from_bucket))
    return tuple(parts)


def _advance(
    folder: Path, wanted: _Wanted, manifest: Manifest, segments: tuple[Segment, ...]
) -> tuple[Segment, ...]:
    """Bring the folder forward to the wanted batch.

    Crash:
        Between two chunks of a long catalog: the next caller goes on after the last
        manifest.
    """
    segments = tuple(
        part for part in segments if part.entry.last_bucket >= wanted.live_from_bucket
    )
    pending: list[Columns] = []
    last = manifest.through_sequence
    for sequence, columns in wanted.runs_after(last):
        if sequence != last and sum(map(len, pending)) >= _CHUNK_IDS:
            segments = _appended(folder, wanted, segments, pending, last)
            pending = []
        pending.append(columns)
        last = sequence
    return _appended(folder, wanted, segments, pending, wanted.through_sequence)


def _appended(
    folder: Path,
    wanted: _Wanted,
    segments: tuple[Segment, ...],
    pending: list[Columns],
    through_sequence: int,
) -> tuple[Segment, ...]:
    """Write the pending runs as a segment, merged with the segments they outgrow."""
    added = sum(map(len, pending))
    if added:
        kept = _count_to_keep([len(part.columns) for part in segments], added)
        sources = [*(part.columns for part in segments[kept:]), *pending]
        merged = merge(sources, wanted.live_from_bucket)
        segments = (*segments[:kept], write_segment(folder, merged, through_sequence))
    replace_manifest(
        folder,
        Manifest(
            through_sequence=through_sequence,
            live_from_bucket=wanted.live_from_bucket,
            segments=tuple(part.entry for part in segments),
        ),
    )
    return segments


def _count_to_keep(sizes: list[int], added: int) -> int:
    """Return how many of the first segments stay as they are.

    Every segment that stays holds more than a quarter of all IDs from itself on, so a
    catalog of N times a batch has at most log(N) to the base 4/3 segments.
    """
    total = sum(sizes) + added
    for at, size in enumerate(sizes):
        if total >= _GROWTH * size:
            return at
        total -= size
    return len(sizes)


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Hold the lock of a shard, or yield False when its holder does not let go."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield _try_lock(descriptor)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    deadline = time.monotonic() + _LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_LOCK_POLL_S)
        else:
            return True
