"""Copies of catalogs with merged buckets, and what they have seen."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tallyweir.sinks.seen_ids.catalog_copy import CatalogCopy
from tallyweir.sinks.seen_ids.ordering import U64Array
from tallyweir.sinks.seen_ids.segment import SegmentView
from tallyweir.sinks.seen_ids.tests.catalog import (
    AtOnce,
    MemoryCatalog,
    Never,
    chunks_cost_nothing,
)

SEED = 20261123
IDS = 20_000
BATCHES = 10
#: More than any of these catalogs has.
_BUCKETS_MAX = 3


def random_pairs(seed: int, ids: int = IDS) -> U64Array:
    """Draw fingerprints."""
    return np.random.default_rng(seed).integers(0, 2**64, (ids, 2), dtype=np.uint64)


def open_copy(
    catalog: MemoryCatalog, directory: Path, *, is_idle: bool = False
) -> SegmentView:
    """Show a catalog to a driver that starts, with its chunks if somebody is idle."""
    if not is_idle:
        return look(CatalogCopy(directory, Never()), catalog)
    copy = CatalogCopy(directory, AtOnce())
    with chunks_cost_nothing():
        # A piece is fetched at each look, and a bucket is less than that.
        for _ in range(_BUCKETS_MAX):
            view = look(copy, catalog)
    return view


def look(copy: CatalogCopy, catalog: MemoryCatalog) -> SegmentView:
    """Show a catalog once more, as at the next batch."""
    return copy.view(catalog=catalog, live_from_bucket=0, through_sequence=BATCHES)


def count_seen(view: SegmentView, pairs: U64Array) -> int:
    """Ask for fingerprints in any order; count those that were seen."""
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    hi, lo = pairs[order].T
    return int(view.find(hi, lo).found.sum())
