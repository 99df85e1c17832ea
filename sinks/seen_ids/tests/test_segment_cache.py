"""The cache shows exactly the catalog, at one batch, in any state of its folder."""

from __future__ import annotations

import fcntl
import math
import multiprocessing
import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from sinks.seen_ids import segment_cache
from sinks.seen_ids.run import Run
from sinks.seen_ids.segment import SegmentView
from sinks.seen_ids.segment_cache import SegmentCache
from sinks.seen_ids.tests.catalog import FolderCatalog, run_of

SEED = 20261121
_DEADLINE_S = 60.0


@pytest.fixture
def catalog(tmp_path: Path) -> FolderCatalog:
    """An empty catalog."""
    folder = tmp_path / "catalog"
    folder.mkdir()
    return FolderCatalog(folder)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where the cache of the pipeline goes."""
    return tmp_path / "cache"


def _pairs_of(sequence: int, count: int = 40) -> list[tuple[int, int]]:
    rng = random.Random(SEED + sequence)
    return [(rng.getrandbits(64), rng.getrandbits(64)) for _ in range(count)]


def _view(
    cache: SegmentCache, catalog: FolderCatalog, through: int, live_from: int = 0
) -> SegmentView:
    return cache.view(
        shard=0,
        catalog=catalog,
        live_from_bucket=live_from,
        through_sequence=through,
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


def _fill(catalog: FolderCatalog, batches: int) -> None:
    for sequence in range(batches):
        catalog.append(sequence, [run_of(_pairs_of(sequence), bucket=sequence)])


def test_a_view_of_an_earlier_batch_never_shows_later_ids(
    directory: Path, catalog: FolderCatalog
) -> None:
    """A batch that is run again must not find its own IDs, or it would drop itself."""
    _fill(catalog, 12)
    cache = SegmentCache(directory, "e")
    for through in (11, 4, 0, -1, 10, 11):
        assert _sees_exactly(_view(cache, catalog, through), through, of=12)


def test_what_the_node_has_is_not_fetched_again(
    directory: Path, catalog: FolderCatalog
) -> None:
    """Each run is fetched once a node, not once a task or a process."""
    _fill(catalog, 9)
    for through in range(9):
        for _ in range(3):
            _view(SegmentCache(directory, "e"), catalog, through)
    assert catalog.fetched == 9


def test_many_small_runs_become_few_segments(
    directory: Path, catalog: FolderCatalog
) -> None:
    """The cost of a search grows with the logarithm of the number of batches."""
    batches = 100
    _fill(catalog, batches)
    cache = SegmentCache(directory, "e")
    for through in range(batches):
        view = _view(cache, catalog, through)
        assert len(view.parts) <= 1 + 3 * math.log(through + 1, 4) + 1
        files = list(directory.rglob("*.segment"))
        assert len(files) == len(view.parts)
    assert _sees_exactly(view, batches - 1, of=batches)


def test_uneven_runs_do_not_pile_up(directory: Path, catalog: FolderCatalog) -> None:
    """A small batch between large ones must not keep them from merging."""
    cache = SegmentCache(directory, "e")
    for sequence in range(60):
        count = 500 if sequence % 2 else 1
        catalog.append(sequence, [run_of(_pairs_of(sequence, count))])
        view = _view(cache, catalog, sequence)
    assert len(view.parts) <= 12
    assert sum(map(len, view.parts)) == 30 * 501


def test_expired_buckets_leave_the_view_at_once_and_the_disk_in_time(
    directory: Path, catalog: FolderCatalog
) -> None:
    """The horizon bounds what a node keeps."""
    cache = SegmentCache(directory, "e")
    for sequence in range(100):
        catalog.append(sequence, [run_of(_pairs_of(sequence), bucket=sequence)])
        live_from = max(0, sequence - 9)
        view = _view(cache, catalog, sequence, live_from)
        for at in range(sequence + 1):
            assert _sees(view, _pairs_of(at)) == [at >= live_from] * 40
        assert sum(map(len, view.parts)) <= 4 * 10 * 40


def test_a_far_bucket_does_not_keep_expired_ids_on_the_disk(
    directory: Path, catalog: FolderCatalog
) -> None:
    """Merging drops what has expired, even beside IDs that live for long."""
    cache = SegmentCache(directory, "e")
    for sequence in range(100):
        near = run_of(_pairs_of(sequence), bucket=sequence)
        far = run_of([(0, sequence)], bucket=10_000)
        catalog.append(sequence, [near, far])
        view = _view(cache, catalog, sequence, max(0, sequence - 9))
        assert sum(map(len, view.parts)) <= 4 * 10 * 40 + 100
    assert _sees(view, [(0, sequence) for sequence in range(100)]) == [True] * 100


class _Failing(FolderCatalog):
    """A catalog whose connection breaks after some runs."""

    def __init__(self, folder: Path, runs: int) -> None:
        super().__init__(folder)
        self._runs = runs

    def fetch_runs(
        self,
        *,
        shard: int,
        after_sequence: int,
        through_sequence: int,
        live_from_bucket: int,
    ) -> Iterator[tuple[int, Run]]:
        for item in super().fetch_runs(
            shard=shard,
            after_sequence=after_sequence,
            through_sequence=through_sequence,
            live_from_bucket=live_from_bucket,
        ):
            if self.fetched > self._runs:
                raise ConnectionError
            yield item


@pytest.mark.parametrize("runs", range(1, 8))
def test_a_fetch_that_breaks_off_loses_no_run_of_its_last_batch(
    directory: Path,
    catalog: FolderCatalog,
    tmp_path: Path,
    runs: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A manifest names a batch only when all runs of the batch are in."""
    monkeypatch.setattr(segment_cache, "_CHUNK_IDS", 1)
    for sequence in range(3):
        pairs = _pairs_of(sequence)
        parts = (pairs[:10], pairs[10:30], pairs[30:])
        catalog.append(
            sequence, [run_of(part, bucket=at) for at, part in enumerate(parts)]
        )
    cache = SegmentCache(directory, "e")
    with pytest.raises(ConnectionError):
        _view(cache, _Failing(tmp_path / "catalog", runs), 2)
    assert _sees_exactly(_view(cache, catalog, 2), 2, of=3)


def test_a_view_with_an_older_horizon_still_shows_the_older_buckets(
    directory: Path, catalog: FolderCatalog
) -> None:
    """A batch run again sees the horizon that it saw the first time."""
    _fill(catalog, 9)
    cache = SegmentCache(directory, "e")
    _view(cache, catalog, 7, live_from=6)
    for through in (8, 7, 6):
        view = _view(cache, catalog, through, live_from=0)
        assert _sees_exactly(view, through, of=9)


def test_a_view_outlives_its_files(directory: Path, catalog: FolderCatalog) -> None:
    """A later batch, or a later epoch, may remove files while a task reads them."""
    _fill(catalog, 6)
    view = _view(SegmentCache(directory, "e"), catalog, 5)
    SegmentCache(directory, "f").remove_other_epochs()
    assert not (directory / "e").exists()
    assert _sees_exactly(view, 5, of=6)


def test_another_epoch_never_reads_this_ones_files(
    directory: Path, catalog: FolderCatalog
) -> None:
    """After a restore from backup the same sequences stand for other batches."""
    _fill(catalog, 3)
    _view(SegmentCache(directory, "e"), catalog, 2)
    catalog.append(2, [run_of([(1, 1)])])
    view = _view(SegmentCache(directory, "f"), catalog, 2)
    assert _sees(view, [(1, 1), *_pairs_of(2)]) == [True] + [False] * 40


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "remove", "garbage"])
@pytest.mark.parametrize("victim", ["*.segment", "manifest.json"])
def test_damage_is_made_anew(
    directory: Path, catalog: FolderCatalog, damage: str, victim: str
) -> None:
    """A wrong byte could hide an ID, so no byte is believed unchecked."""
    _fill(catalog, 6)
    for through in range(6):
        _view(SegmentCache(directory, "e"), catalog, through)
    for path in directory.rglob(victim):
        stored = bytearray(path.read_bytes())
        stored[len(stored) // 8] ^= 0x10
        path.unlink()
        contents = {
            "flip": bytes(stored),
            "truncate": bytes(stored[: len(stored) // 2]),
            "empty": b"",
            "garbage": os.urandom(len(stored)),
        }
        if damage != "remove":
            path.write_bytes(contents[damage])
    cache = SegmentCache(directory, "e")
    assert _sees_exactly(_view(cache, catalog, 5), 5, of=6)
    fetched = catalog.fetched
    assert _sees_exactly(_view(cache, catalog, 5), 5, of=6)
    assert catalog.fetched == fetched


def test_who_cannot_lock_reads_without_writing(
    directory: Path, catalog: FolderCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stopped task that holds the lock must not stop the pipeline."""
    _fill(catalog, 6)
    _view(SegmentCache(directory, "e"), catalog, 3)
    monkeypatch.setattr(segment_cache, "_LOCK_WAIT_S", 0.0)
    before = {path.name for path in directory.rglob("*")}
    with (directory / "e" / "shard-00000" / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        view = _view(SegmentCache(directory, "e"), catalog, 5)
    assert _sees_exactly(view, 5, of=6)
    assert {path.name for path in directory.rglob("*")} == before


def _read_for_ever(directory: Path, catalog: Path, seed: int, batches: int) -> None:
    """Ask for random batches, as tasks and zombies do, until killed."""
    rng = random.Random(seed)
    source = FolderCatalog(catalog)
    while True:
        cache = SegmentCache(directory, "e")
        for through in sorted(rng.sample(range(batches), 5)):
            _view(cache, source, through)
        if rng.random() < 0.3:
            shutil.rmtree(directory / "e", ignore_errors=True)


def _read_and_check(
    directory: Path, catalog: Path, seed: int, batches: int, rounds: int
) -> None:
    rng = random.Random(seed)
    source = FolderCatalog(catalog)
    cache = SegmentCache(directory, "e")
    for _ in range(rounds):
        through = rng.randrange(batches)
        assert _sees_exactly(_view(cache, source, through), through, of=batches)


def test_processes_on_one_folder_all_see_their_batch(
    directory: Path, catalog: FolderCatalog, tmp_path: Path
) -> None:
    """Workers, zombies and a deleted folder at once change nobody's answer."""
    batches = 15
    _fill(catalog, batches)
    spawn = multiprocessing.get_context("spawn")
    noise = spawn.Process(
        target=_read_for_ever, args=(directory, tmp_path / "catalog", SEED, batches)
    )
    readers = [
        spawn.Process(
            target=_read_and_check,
            args=(directory, tmp_path / "catalog", SEED + at, batches, 60),
        )
        for at in range(3)
    ]
    for process in (noise, *readers):
        process.start()
    for process in readers:
        process.join(_DEADLINE_S)
    noise.kill()
    noise.join(_DEADLINE_S)
    assert [process.exitcode for process in readers] == [0, 0, 0]


def _advance_for_ever(directory: Path, catalog: Path, batches: int) -> None:
    source = FolderCatalog(catalog)
    while True:
        cache = SegmentCache(directory, "e")
        for through in range(batches):
            _view(cache, source, through)
        shutil.rmtree(directory / "e", ignore_errors=True)


def test_a_killed_writer_leaves_a_folder_that_works(
    directory: Path, catalog: FolderCatalog, tmp_path: Path
) -> None:
    """SIGKILL in the middle of a merge, 20 times: no lock, no half file stays."""
    batches = 15
    _fill(catalog, batches)
    rng = random.Random(SEED)
    fork = multiprocessing.get_context("fork")
    states = set()
    for _ in range(20):
        writer = fork.Process(
            target=_advance_for_ever, args=(directory, tmp_path / "catalog", batches)
        )
        writer.start()
        _wait_for_a_segment(directory)
        wait_until = time.monotonic() + rng.uniform(0, 0.03)
        while time.monotonic() < wait_until:
            pass
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
        writer.join(_DEADLINE_S)
        states.add(tuple(sorted(_names_in(directory))))
        cache = SegmentCache(directory, "e")
        assert _sees_exactly(_view(cache, catalog, batches - 1), batches - 1, batches)
        shutil.rmtree(directory / "e")
    assert len(states) > 10


def _wait_for_a_segment(directory: Path) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not any(name.endswith(".segment") for name in _names_in(directory)):
        assert time.monotonic() < deadline, "the writer wrote no segment"


def _names_in(directory: Path) -> list[str]:
    # Unlike a glob, a walk does not mind folders that vanish meanwhile.
    return [name for *_, names in os.walk(directory) for name in names]
