"""The copy shows exactly the catalog, at one batch, however it was made."""

from __future__ import annotations

import errno
import math
import os
import random
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from pathlib import Path

import numpy as np
import pytest

from tallyweir.sinks.protocol.errors import RetryableError
from tallyweir.sinks.seen_ids import catalog_copy, segment
from tallyweir.sinks.seen_ids.catalog_copy import CatalogCopy
from tallyweir.sinks.seen_ids.run import Run
from tallyweir.sinks.seen_ids.segment import Columns, SegmentView
from tallyweir.sinks.seen_ids.stored_chunks import StoredChunks
from tallyweir.sinks.seen_ids.tests.catalog import AtOnce, MemoryCatalog, P, T, run_of

SEED = 20261121


@pytest.fixture
def catalog() -> MemoryCatalog:
    """An empty catalog."""
    return MemoryCatalog()


@pytest.fixture
def copy(tmp_path: Path) -> CatalogCopy:
    """An empty copy, whose merges are done at once."""
    return CatalogCopy(tmp_path, AtOnce())


def _pairs_of(sequence: int, count: int = 40) -> list[tuple[int, int]]:
    rng = random.Random(SEED + sequence)
    return [(rng.getrandbits(64), rng.getrandbits(64)) for _ in range(count)]


def _view(
    copy: CatalogCopy, catalog: MemoryCatalog, through: int, live_from: int = 0
) -> SegmentView:
    return copy.view(
        catalog=catalog, live_from_bucket=live_from, through_sequence=through
    )


def _sees(view: SegmentView, pairs: list[tuple[int, int]]) -> list[bool]:
    """Tell of each pair whether the view holds it."""
    hi, lo = np.array(pairs, dtype=np.uint64).reshape(-1, 2).T
    found: list[bool] = view.find(hi, lo).found.tolist()
    return found


def _sees_exactly(view: SegmentView, through: int, of: int) -> bool:
    """Tell whether the view holds all of batches 0..through and none up to ``of``."""
    return all(
        _sees(view, _pairs_of(sequence)) == [sequence <= through] * 40
        for sequence in range(of)
    )


def _fill(catalog: MemoryCatalog, batches: int) -> None:
    for sequence in range(batches):
        catalog.append(sequence, [run_of(_pairs_of(sequence), bucket=sequence)])


def test_a_view_of_an_earlier_batch_never_shows_later_ids(
    copy: CatalogCopy, catalog: MemoryCatalog
) -> None:
    """A batch that is run again must not find its own IDs, or it would drop itself."""
    _fill(catalog, 12)
    for through in (11, 4, 0, -1, 10, 11):
        assert _sees_exactly(_view(copy, catalog, through), through, of=12)


def test_a_run_is_fetched_once(copy: CatalogCopy, catalog: MemoryCatalog) -> None:
    """However often its batch is asked for."""
    _fill(catalog, 9)
    for through in range(9):
        for _ in range(3):
            _view(copy, catalog, through)
    assert catalog.fetched == 9


def test_many_small_runs_become_few_segments(
    copy: CatalogCopy, catalog: MemoryCatalog
) -> None:
    """The cost of a search grows with the logarithm of the number of batches."""
    batches = 100
    _fill(catalog, batches)
    for through in range(batches):
        view = _view(copy, catalog, through)
        assert len(view.parts) <= 2 + 3 * math.log(through + 1, 4) + 1
    assert _sees_exactly(view, batches - 1, of=batches)


def test_a_start_looks_at_each_run_a_few_times_however_many_there_are(
    copy: CatalogCopy, catalog: MemoryCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipeline of small batches has a hundred thousand of them within an hour."""
    looks: list[Columns] = []
    length = Columns.__len__

    def note(columns: Columns) -> int:
        looks.append(columns)
        return length(columns)

    monkeypatch.setattr(Columns, "__len__", note)
    batches = 500
    for sequence in range(batches):
        catalog.append(sequence, [run_of(_pairs_of(sequence, 2))])
    _view(copy, catalog, batches - 1)
    assert batches <= len(looks) <= 10 * batches


def test_uneven_runs_do_not_pile_up(copy: CatalogCopy, catalog: MemoryCatalog) -> None:
    """A small batch between large ones must not keep them from merging."""
    for sequence in range(60):
        count = 500 if sequence % 2 else 1
        catalog.append(sequence, [run_of(_pairs_of(sequence, count))])
        view = _view(copy, catalog, sequence)
    assert len(view.parts) <= 13
    assert sum(map(len, view.parts)) == 30 * 501


def test_the_runs_that_several_tasks_add_to_one_bucket_are_all_seen(
    copy: CatalogCopy, catalog: MemoryCatalog
) -> None:
    """Each task of a batch brings a run of its own, and their IDs interleave."""
    pairs = sorted(_pairs_of(0))
    catalog.append(0, [run_of(pairs[task::4], bucket=3600) for task in range(4)])
    assert _sees(_view(copy, catalog, 0), pairs) == [True] * 40
    assert [40] == [len(part) for part in _view(copy, catalog, 0).parts]


def test_expired_buckets_leave_the_view_at_once_and_the_disk_in_time(
    copy: CatalogCopy, catalog: MemoryCatalog
) -> None:
    """The horizon bounds what a driver keeps."""
    for sequence in range(100):
        catalog.append(sequence, [run_of(_pairs_of(sequence), bucket=sequence)])
        live_from = max(0, sequence - 9)
        view = _view(copy, catalog, sequence, live_from)
        for at in range(sequence + 1):
            assert _sees(view, _pairs_of(at)) == [at >= live_from] * 40
        assert sum(map(len, view.parts)) <= 4 * 10 * 40


def test_a_far_bucket_does_not_keep_expired_ids_on_the_disk(
    copy: CatalogCopy, catalog: MemoryCatalog
) -> None:
    """Merging drops what has expired, even beside IDs that live for long."""
    for sequence in range(100):
        near = run_of(_pairs_of(sequence), bucket=sequence)
        far = run_of([(0, sequence)], bucket=10_000)
        catalog.append(sequence, [near, far])
        view = _view(copy, catalog, sequence, max(0, sequence - 9))
        assert sum(map(len, view.parts)) <= 4 * 10 * 40 + 100
    assert _sees(view, [(0, sequence) for sequence in range(100)]) == [True] * 100


class _Failing(MemoryCatalog):
    """A catalog whose connection breaks after some runs."""

    def __init__(self, whole: MemoryCatalog, runs: int) -> None:
        super().__init__()
        self._whole = whole
        self._left = runs

    def fetch_runs(self, **wanted: int) -> Iterator[tuple[int, Run | StoredChunks]]:
        for item in self._whole.fetch_runs(**wanted):
            if not self._left:
                raise ConnectionError
            self._left -= 1
            yield item


@pytest.mark.parametrize("runs", range(8))
def test_a_fetch_that_breaks_off_loses_no_run_of_its_last_batch(
    copy: CatalogCopy,
    catalog: MemoryCatalog,
    runs: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A batch counts as copied only when all runs of the batch are in."""
    monkeypatch.setattr(catalog_copy, "_CHUNK_IDS", 1)
    for sequence in range(3):
        pairs = _pairs_of(sequence)
        parts = (pairs[:10], pairs[10:30], pairs[30:])
        catalog.append(
            sequence, [run_of(part, bucket=at) for at, part in enumerate(parts)]
        )
    with pytest.raises(ConnectionError):
        _view(copy, _Failing(catalog, runs), 2)
    view = _view(copy, catalog, 2)
    assert _sees_exactly(view, 2, of=3)
    assert sum(map(len, view.parts)) == 120


def test_a_view_with_an_older_horizon_still_shows_the_older_buckets(
    copy: CatalogCopy, catalog: MemoryCatalog
) -> None:
    """A run that takes the place of all before it has no watermark to forget by."""
    _fill(catalog, 9)
    _view(copy, catalog, 7, live_from=6)
    for through in (8, 7, 6):
        assert _sees_exactly(_view(copy, catalog, through, live_from=0), through, of=9)


def test_a_view_outlives_the_segments_that_were_merged(
    copy: CatalogCopy, catalog: MemoryCatalog
) -> None:
    """The next batch begins while tasks of this one may still ask."""
    _fill(catalog, 30)
    views = [_view(copy, catalog, through) for through in range(30)]
    for through, view in enumerate(views):
        assert _sees_exactly(view, through, of=30)


def test_nothing_is_left_on_the_disk_and_nothing_could_be_deleted(
    copy: CatalogCopy, catalog: MemoryCatalog, tmp_path: Path
) -> None:
    """A cleaner of temporary files, or a second driver, finds no file."""
    _fill(catalog, 5)
    _view(copy, catalog, 4)
    assert not list(tmp_path.iterdir())


class _Held(Executor):
    """Merges when it is told to."""

    def __init__(self) -> None:
        self.held: list[Callable[[], None]] = []

    def submit(
        self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Future[T]:
        future: Future[T] = Future()
        self.held.append(lambda: future.set_result(fn(*args, **kwargs)))
        return future


def test_batches_go_on_while_segments_are_merged(
    catalog: MemoryCatalog, tmp_path: Path
) -> None:
    """A merge of many IDs takes long; whatever comes meanwhile is in its place."""
    merger = _Held()
    copy = CatalogCopy(tmp_path, merger)
    _fill(catalog, 40)
    for through in range(40):
        view = _view(copy, catalog, through, live_from=0 if through < 30 else 5)
        for at in range(40):
            is_seen = (0 if through < 30 else 5) <= at <= through
            assert _sees(view, _pairs_of(at)) == [is_seen] * 40
        assert len(merger.held) <= 1
        if through % 7 == 6:
            merger.held.pop()()
    assert len(view.parts) < 20


def test_a_merge_of_a_copy_that_began_anew_is_thrown_away(
    catalog: MemoryCatalog, tmp_path: Path
) -> None:
    """It may hold IDs of batches that are not to be seen."""
    merger = _Held()
    copy = CatalogCopy(tmp_path, merger)
    _fill(catalog, 12)
    for through in range(8):
        _view(copy, catalog, through)
    assert merger.held
    assert _sees_exactly(_view(copy, catalog, 2), 2, of=12)
    for merge in merger.held:
        merge()
    assert _sees_exactly(_view(copy, catalog, 2), 2, of=12)


def test_ids_are_merged_block_by_block(
    copy: CatalogCopy, catalog: MemoryCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of IDs that are in several segments one stays, wherever a block ends."""
    monkeypatch.setattr(segment, "_BLOCK_IDS", 3)
    rng = random.Random(SEED)
    pairs = [
        (rng.choice([0, 1, 2**63, 2**64 - 1]), rng.randrange(9)) for _ in range(40)
    ]
    for sequence in range(20):
        some = list(set(rng.sample(pairs, 12)))
        catalog.append(sequence, [run_of(some, payload_hash=sequence + 1)])
        view = _view(copy, catalog, sequence)
    assert _sees(view, sorted(set(pairs))) == [True] * len(set(pairs))
    for part in view.parts:
        assert isinstance(part, Columns)
        words = list(zip(part.hi.tolist(), part.lo.tolist(), strict=True))
        assert words == sorted(set(words))


def test_a_full_disk_is_told_as_what_it_is(
    copy: CatalogCopy, catalog: MemoryCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And when there is room again, nothing is missing."""
    _fill(catalog, 3)
    _view(copy, catalog, 1)

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", fail)
        with pytest.raises(RetryableError) as raised:
            _view(copy, catalog, 2)
    assert raised.value.code == "SEEN_ID_COPY_FAILED"
    assert "No space left" in raised.value.saw
    assert _sees_exactly(_view(copy, catalog, 2), 2, of=3)
