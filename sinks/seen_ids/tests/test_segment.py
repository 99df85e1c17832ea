"""A segment keeps of each ID the entry that counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tallyweir.sinks.seen_ids.bloom_filter import Asked
from tallyweir.sinks.seen_ids.segment import Columns, SegmentView, write_merged
from tallyweir.sinks.seen_ids.tests.catalog import run_of


@pytest.mark.parametrize(
    ("filed", "counts"),
    [
        ([(0, 1), (0, 2)], (0, 2)),
        ([(0, 1), (3600, 2)], (3600, 2)),
        ([(3600, 2), (0, 1)], (3600, 2)),
        ([(3600, 2), (0, 1), (3600, 3)], (3600, 3)),
    ],
)
def test_the_last_entry_of_the_latest_bucket_stays(
    tmp_path: Path, filed: list[tuple[int, int]], counts: tuple[int, int]
) -> None:
    """A correction is never filed under an earlier bucket than what it corrects."""
    sources = [
        Columns.of_run(run_of([(5, 5), (6, bucket)], bucket=bucket, payload_hash=one))
        for bucket, one in filed
    ]
    merged = write_merged(tmp_path, sources, 0)
    hits = merged.look_up(Asked(*np.array([[5], [5]], dtype=np.uint64)))
    assert [counts] == list(
        zip(hits.buckets.tolist(), hits.payload_hashes.tolist(), strict=True)
    )


def test_of_several_parts_the_latest_bucket_answers() -> None:
    """Whichever part is searched last."""
    parts = [
        Columns.of_run(run_of([(5, 5)], bucket=bucket, payload_hash=payload_hash))
        for bucket, payload_hash in ((3600, 1), (7200, 2))
    ]
    word = np.array([5], dtype=np.uint64)
    for order in (parts, parts[::-1]):
        found = SegmentView(parts=tuple(order), live_from_bucket=0).find(word, word)
        assert [7200] == found.buckets.tolist()
        assert [2] == found.payload_hashes.tolist()


def test_searches_that_a_filter_did_not_spare_are_counted(tmp_path: Path) -> None:
    """Nearly none of new IDs, and each of those that are there."""
    rng = np.random.default_rng(20261125)
    words = rng.integers(0, 2**64, (2, 20_000), dtype=np.uint64)
    hi, lo = words[:, np.lexsort((words[1], words[0]))]
    half = np.zeros(20_000, dtype=np.bool_)
    half[::2] = True
    run = run_of(list(zip(hi[half].tolist(), lo[half].tolist(), strict=True)))
    merged = write_merged(tmp_path, [Columns.of_run(run)], 0)
    found = SegmentView(parts=(merged,), live_from_bucket=0).find(hi, lo)
    assert found.met == int(found.found.sum()) == 10_000
    false_positives = found.looked_up - found.met
    assert 0 <= false_positives < 10_000 * 0.003
    # Without a filter every ID is searched for.
    bare = SegmentView(parts=(Columns.of_run(run),), live_from_bucket=0).find(hi, lo)
    assert (bare.looked_up, bare.met) == (20_000, 10_000)
