"""Merged buckets are asked as one, and each ID is found in its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tallyweir.sinks.seen_ids.bloom_filter import Asked, BloomFilter
from tallyweir.sinks.seen_ids.catalog_copy import CatalogCopy
from tallyweir.sinks.seen_ids.ordering import I64Array
from tallyweir.sinks.seen_ids.tests.catalog import AtOnce, MemoryCatalog, run_of
from tallyweir.sinks.seen_ids.tests.merged_catalog import (
    SEED,
    count_seen,
    open_copy,
    random_pairs,
)

_BUCKETS = (0, 3600, 7200)


def _filled(seed: int = SEED) -> MemoryCatalog:
    """Return a catalog of three merged buckets, a batch each."""
    catalog = MemoryCatalog()
    for batch, (bucket, pairs) in enumerate(
        zip(_BUCKETS, np.split(random_pairs(seed, 30_000), 3), strict=True)
    ):
        run = [(int(hi), int(lo)) for hi, lo in pairs]
        catalog.append(batch, [run_of(run, bucket=bucket, payload_hash=batch + 1)])
        catalog.merge(bucket, batch)
    return catalog


@pytest.mark.parametrize("is_idle", [True, False])
def test_ids_of_several_buckets_are_found_in_theirs(
    tmp_path: Path,
    is_idle: bool,  # noqa: FBT001
) -> None:
    """Here, behind one filter over all of them, or where they are stored."""
    catalog = _filled()
    view = open_copy(catalog, tmp_path, is_idle=is_idle)
    pairs = random_pairs(SEED, 30_000)[::30]
    buckets = np.repeat(_BUCKETS, 10_000)[::30]
    order = np.argsort(pairs[:, 0])
    found = view.find(*pairs[order].T)
    assert found.found.all()
    assert found.buckets.tolist() == buckets[order].tolist()
    assert count_seen(view, random_pairs(SEED + 1, 20_000)) == 0


@pytest.fixture
def asked_of_filters(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many IDs each filter that was asked was asked for, in order."""
    plain = BloomFilter.find_possible
    counts: list[int] = []

    def count(bloom: BloomFilter, asked: Asked) -> I64Array:
        counts.append(len(asked))
        return plain(bloom, asked)

    monkeypatch.setattr(BloomFilter, "find_possible", count)
    return counts


def test_of_fetched_buckets_a_new_id_is_asked_once(
    tmp_path: Path, asked_of_filters: list[int]
) -> None:
    """The filter over all of them rules it out; their own hear of the rest."""
    view = open_copy(_filled(), tmp_path, is_idle=True)
    assert count_seen(view, random_pairs(SEED + 1, 20_000)) == 0
    # One in a hundred passes the first, and is asked of three more.
    assert 1.02 < sum(asked_of_filters) / 20_000 < 1.04


@pytest.mark.parametrize("is_idle", [True, False])
def test_an_id_that_is_in_two_buckets_is_answered_by_the_later_one(
    tmp_path: Path,
    is_idle: bool,  # noqa: FBT001
) -> None:
    """It was corrected, and a correction is never filed under an earlier bucket."""
    catalog = MemoryCatalog()
    for batch, bucket in enumerate(_BUCKETS):
        run = [(9, 9), (batch, batch)]
        catalog.append(batch, [run_of(run, bucket=bucket, payload_hash=batch + 1)])
        catalog.merge(bucket, batch)
    view = open_copy(catalog, tmp_path, is_idle=is_idle)
    hi, lo = np.array([[0, 9], [0, 9]], dtype=np.uint64)
    found = view.find(hi, lo)
    assert found.payload_hashes.tolist() == [1, 3]
    assert found.buckets.tolist() == [_BUCKETS[0], _BUCKETS[2]]


def test_an_id_that_was_found_is_not_asked_of_earlier_buckets(
    tmp_path: Path, asked_of_filters: list[int]
) -> None:
    """Most repeats come soon, so the latest bucket is asked first."""
    view = open_copy(_filled(), tmp_path, is_idle=True)
    of_latest = random_pairs(SEED, 30_000)[20_000:]
    assert count_seen(view, of_latest) == len(of_latest)
    assert asked_of_filters == [len(of_latest), len(of_latest), 0, 0]


def test_a_bucket_that_has_expired_leaves_the_group_that_it_is_in(
    tmp_path: Path,
) -> None:
    """The filter over all may still let its IDs pass, and nothing is found then."""
    catalog = _filled()
    copy = CatalogCopy(tmp_path, AtOnce())
    for live_from, expected in ((0, 30_000), (3600, 20_000), (7201, 0)):
        view = copy.view(
            catalog=catalog, live_from_bucket=live_from, through_sequence=2
        )
        assert count_seen(view, random_pairs(SEED, 30_000)) == expected
        assert sum(map(len, view.parts)) == expected
