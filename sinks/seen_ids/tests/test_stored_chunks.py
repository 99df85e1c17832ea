"""IDs in chunks are found wherever the chunks are, and never taken for new ones."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from tallyweir.sinks.protocol.errors import RetryableError
from tallyweir.sinks.seen_ids import chunk, stored_chunks
from tallyweir.sinks.seen_ids.catalog_copy import CatalogCopy
from tallyweir.sinks.seen_ids.ordering import U64Array
from tallyweir.sinks.seen_ids.tests.catalog import (
    AtOnce,
    MemoryCatalog,
    Never,
    run_of,
)
from tallyweir.sinks.seen_ids.tests.merged_catalog import (
    BATCHES,
    IDS,
    SEED,
    count_seen,
    look,
    open_copy,
    random_pairs,
)


@pytest.fixture
def catalog(monkeypatch: pytest.MonkeyPatch) -> MemoryCatalog:
    """A bucket of ten batches that was merged, and one of which nothing was."""
    monkeypatch.setattr(chunk, "CHUNK_IDS", 1 << 10)
    filled = MemoryCatalog()
    for batch, pairs in enumerate(np.split(random_pairs(SEED), BATCHES)):
        run = [(int(hi), int(lo)) for hi, lo in pairs]
        filled.append(batch, [run_of(run, payload_hash=batch + 1)])
    filled.append(BATCHES, [run_of([(1, 1)], bucket=3600)])
    filled.merge(0, BATCHES)
    return filled


def _with_new_ones() -> U64Array:
    return np.concatenate([random_pairs(SEED), random_pairs(SEED + 1)])


def test_a_start_reads_filters_and_no_chunks(
    catalog: MemoryCatalog, tmp_path: Path
) -> None:
    """And then of new IDs only those that a filter lets pass are looked up."""
    view = open_copy(catalog, tmp_path)
    assert (catalog.fetched, catalog.slices, catalog.wholes) == (1, 0, 0)
    assert count_seen(view, random_pairs(SEED + 1, 10_000)) == 0
    assert 0 < catalog.slices < 10
    assert catalog.wholes == 0


def test_a_few_ids_are_looked_up_in_slices_with_what_is_known_of_them(
    catalog: MemoryCatalog, tmp_path: Path
) -> None:
    """The hash is that of the batch that brought the ID."""
    view = open_copy(catalog, tmp_path)
    pairs = random_pairs(SEED)[:: IDS // 1_000]
    hi, lo = pairs[np.argsort(pairs[:, 0])].T
    found = view.find(hi, lo)
    assert found.found.all()
    batches = np.repeat(np.arange(BATCHES), IDS // BATCHES)[:: IDS // 1_000]
    assert (
        found.payload_hashes.tolist() == (batches[np.argsort(pairs[:, 0])] + 1).tolist()
    )
    # Fingerprints are even enough for slices, but for one in some thousands.
    assert catalog.slices == 1_000
    assert catalog.wholes < 5


def test_many_ids_have_the_chunks_fetched(
    catalog: MemoryCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading everything is faster than thousands of look-ups."""
    monkeypatch.setattr(stored_chunks, "_FETCHED_IDS", IDS // 4)
    view = open_copy(catalog, tmp_path)
    assert count_seen(view, random_pairs(SEED)) == IDS
    assert (catalog.slices, catalog.wholes) == (0, 4)
    assert (
        count_seen(view, np.concatenate([random_pairs(SEED), random_pairs(SEED + 1)]))
        == IDS
    )
    assert (catalog.slices, catalog.wholes) == (0, 4)


def test_chunks_are_fetched_behind_the_batches_backs(
    catalog: MemoryCatalog, tmp_path: Path
) -> None:
    """Then nothing is asked of Postgres any more."""
    view = open_copy(catalog, tmp_path, is_idle=True)
    read = catalog.wholes
    catalog.drop(0)
    assert (
        count_seen(view, np.concatenate([random_pairs(SEED), random_pairs(SEED + 1)]))
        == IDS
    )
    assert (catalog.slices, catalog.wholes) == (0, read)
    assert not list(tmp_path.iterdir())


def test_chunks_are_fetched_once_looking_up_has_cost_as_much(
    catalog: MemoryCatalog, tmp_path: Path
) -> None:
    """Not before: of most buckets hardly anything is ever wanted."""
    copy = CatalogCopy(tmp_path, AtOnce())
    # 1.4 ms to fetch all; a question of ten copies costs 0.61.
    for copies, fetched in ((0, 0), (10, 0), (20, 0), (30, 1), (40, 1)):
        view = look(copy, catalog)
        assert catalog.wholes == fetched
        assert count_seen(view, random_pairs(SEED)[copies : copies + 10]) == 10
    assert catalog.slices == 30


def test_a_bucket_that_was_merged_again_is_fetched_once_something_is_looked_up(
    catalog: MemoryCatalog, tmp_path: Path
) -> None:
    """Its slices are gone, and each look-up would read a whole chunk."""
    copy = CatalogCopy(tmp_path, AtOnce())
    look(copy, catalog)
    catalog.append(BATCHES + 1, [run_of([(3, 3)])])
    catalog.merge(0, BATCHES + 1)
    assert count_seen(look(copy, catalog), random_pairs(SEED)[:1]) == 1
    assert catalog.wholes == 1
    assert count_seen(look(copy, catalog), random_pairs(SEED)[:50]) == 50
    assert catalog.wholes == 2


def test_without_room_chunks_are_not_read_and_ids_are_looked_up_where_they_are(
    catalog: MemoryCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried again once looking up has cost as much again."""
    monkeypatch.setattr(stored_chunks, "_FETCH_US", 0.02)

    def fail(*_: object) -> None:
        tried.append(True)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    tried: list[bool] = []
    copy = CatalogCopy(tmp_path, AtOnce())
    # The IDs that are not merged have their room already.
    look(copy, catalog)
    monkeypatch.setattr(os, "posix_fallocate", fail)
    for batch in range(7):
        assert len(tried) == max(0, batch - 1) // 2
        # 0.36 ms a question, and 0.4 to fetch all.
        assert (
            count_seen(look(copy, catalog), random_pairs(SEED)[batch : batch + 1]) == 1
        )
    assert catalog.wholes == 0


def test_many_small_questions_are_reason_enough_as_well(
    catalog: MemoryCatalog, tmp_path: Path
) -> None:
    """Of chunks that are here one filter is asked for all buckets."""
    copy = CatalogCopy(tmp_path, AtOnce())
    new = random_pairs(SEED + 1, 100).reshape(50, 2, 2)
    for number, pair in enumerate(new):
        assert count_seen(look(copy, catalog), pair) == 0
        assert catalog.wholes == (number * 30.012 >= 1_400)
    assert (catalog.slices, catalog.wholes) == (0, 1)


def test_a_piece_of_the_chunks_is_fetched_beside_each_batch(
    catalog: MemoryCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them at once would slow a driver down that is behind."""
    monkeypatch.setattr(stored_chunks, "_FETCHED_IDS", IDS // 4)
    monkeypatch.setattr(stored_chunks, "_FETCH_US", 0.0)
    copy = CatalogCopy(tmp_path, AtOnce())
    for pieces in (1, 2, 3, 4, 4):
        view = look(copy, catalog)
        assert catalog.wholes == pieces
        assert count_seen(view, random_pairs(SEED)[:50]) == 50


def test_a_fetch_that_could_not_be_kept_begins_anew(
    catalog: MemoryCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pieces that were kept before are fetched again; nothing is missing or twice."""
    monkeypatch.setattr(stored_chunks, "_FETCHED_IDS", IDS // 4)
    monkeypatch.setattr(stored_chunks, "_FETCH_US", 0.0)
    copy = CatalogCopy(tmp_path, AtOnce())
    look(copy, catalog)

    def fail(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", fail)
        view = look(copy, catalog)
        with pytest.raises(RetryableError, match="could not be written"):
            count_seen(view, random_pairs(SEED))
    assert count_seen(view, random_pairs(SEED)) == IDS
    assert (catalog.slices, catalog.wholes) == (0, 1 + 1 + 1 + 4)


def test_a_bucket_that_is_merged_again_meanwhile_is_as_it_was(
    catalog: MemoryCatalog, tmp_path: Path
) -> None:
    """What came later is in the new chunks, and is not to be seen."""
    view = open_copy(catalog, tmp_path)
    later = random_pairs(SEED + 2, 2_000)
    run = [(int(hi), int(lo)) for hi, lo in later]
    catalog.append(BATCHES + 1, [run_of(run)])
    catalog.merge(0, BATCHES + 1)
    assert count_seen(view, random_pairs(SEED)[:500]) == 500
    # Each of its chunks is read once, however many IDs are looked up in it.
    assert catalog.wholes == 32
    assert count_seen(view, later) == 0
    assert count_seen(view, np.concatenate([random_pairs(SEED), later])) == IDS


@pytest.mark.parametrize("ids", [1, IDS])
def test_ids_that_are_gone_are_an_error_and_not_new(
    catalog: MemoryCatalog, tmp_path: Path, ids: int
) -> None:
    """A bucket expires while a batch is staged that began before."""
    view = open_copy(catalog, tmp_path)
    catalog.drop(0)
    with pytest.raises(RetryableError) as raised:
        count_seen(view, random_pairs(SEED)[:ids])
    assert raised.value.code == "SEEN_IDS_GONE"


def test_a_view_of_a_batch_before_the_merged_ones_shows_only_what_was_then(
    catalog: MemoryCatalog, tmp_path: Path
) -> None:
    """A batch that runs again must not find itself."""
    copy = CatalogCopy(tmp_path, Never())
    for through in (3, 8, 5, -1, BATCHES):
        view = copy.view(catalog=catalog, live_from_bucket=0, through_sequence=through)
        expected = min(through + 1, BATCHES) * IDS // BATCHES
        assert count_seen(view, random_pairs(SEED)) == expected


@pytest.mark.parametrize("is_idle", [True, False])
@pytest.mark.parametrize("buckets", [(0, 0), (0, 3600)])
def test_of_an_id_that_was_corrected_the_newest_entry_counts(
    tmp_path: Path,
    is_idle: bool,  # noqa: FBT001
    buckets: tuple[int, int],
) -> None:
    """It is the last of the latest bucket, in whatever order these were merged."""
    catalog = MemoryCatalog()
    for batch, bucket in enumerate(buckets):
        catalog.append(batch, [run_of([(5, 5)], bucket=bucket, payload_hash=batch + 1)])
    for bucket in sorted(set(buckets), reverse=True):
        catalog.merge(bucket, 1)
    view = open_copy(catalog, tmp_path, is_idle=is_idle)
    hi, lo = np.array([[5], [5]], dtype=np.uint64)
    found = view.find(hi, lo)
    assert found.payload_hashes.tolist() == [2]
    assert found.buckets.tolist() == [buckets[1]]


@pytest.mark.parametrize("begin", [0, 2**64 - 2_000])
def test_ids_that_are_not_spread_evenly_are_found_all_the_same(
    tmp_path: Path, begin: int
) -> None:
    """The slice is where they should be; if it is not enough, the chunk is read."""
    catalog = MemoryCatalog()
    pairs = [(begin + number, 7) for number in range(2_000)]
    catalog.append(0, [run_of(pairs)])
    catalog.merge(0, 0)
    view = open_copy(catalog, tmp_path)
    asked = np.array(pairs[::100], dtype=np.uint64)
    assert count_seen(view, asked) == 20
    assert catalog.wholes == 1


def test_entries_of_one_id_on_both_sides_of_a_slice_are_all_looked_at(
    tmp_path: Path,
) -> None:
    """The newest may be the first that the slice leaves out."""
    catalog = MemoryCatalog()
    for batch in range(200):
        catalog.append(batch, [run_of([(9, 9)], payload_hash=batch + 1)])
    catalog.merge(0, 199)
    view = CatalogCopy(tmp_path, Never()).view(
        catalog=catalog, live_from_bucket=0, through_sequence=199
    )
    hi, lo = np.array([[9], [9]], dtype=np.uint64)
    assert view.find(hi, lo).payload_hashes.tolist() == [200]
