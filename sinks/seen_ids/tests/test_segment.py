"""A segment keeps of each ID the entry that counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sinks.seen_ids.bloom_filter import Asked
from sinks.seen_ids.segment import Columns, write_merged
from sinks.seen_ids.tests.catalog import run_of


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
