"""The check for repeats: which rows of a batch hold an ID for the first time.

A claim is a pure function of the batch and of the catalog as it was before the batch:
asked again it answers the same, in whatever order the rows come, and a batch that is
not published leaves nothing behind.

A batch may correct what came before it. Then an ID can be in the catalog more than
once, and the entry of the newest batch is the one that counts. It is filed under the
latest bucket that the ID was ever filed under, so that no older entry outlives it: a
payload that was corrected never counts as new again while anything of its ID is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt

from sinks.seen_ids.ordering import (
    BoolArray,
    I64Array,
    U64Array,
    fingerprint_order,
    first_of_each,
)
from sinks.seen_ids.run import Run

I32Array = npt.NDArray[np.int32]
U8Array = npt.NDArray[np.uint8]

NO_WINNER = -1
NO_HASH = 0


class RowClass(IntEnum):
    """What a claim says of a row."""

    SURVIVOR = 0
    DUPLICATE = 1
    CONFLICT = 2
    #: Survives as well, in the place of an earlier event.
    CORRECTION = 3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidates:
    """The rows of a batch that ask for their IDs, in any order.

    No two rows share a position. Equal fingerprints are in one shard. Buckets below
    the horizon were taken out before: they cannot be checked.

    Attributes:
        place: Number of each row's topic and partition.
        offset: Offset in it.
        shard: Shard of each row's ID.
        bucket: Start of the row's bucket of event time, seconds since the epoch.
        fingerprints: Shape (n, 2).
        payload_hashes: Shape (n,), none of them 0; None if the pipeline keeps none.
    """

    place: I64Array
    offset: I64Array
    shard: I32Array
    bucket: I64Array
    fingerprints: U64Array
    payload_hashes: U64Array | None

    def __post_init__(self) -> None:
        rows = len(self.place)
        assert self.fingerprints.shape == (rows, 2)
        assert len(self.offset) == len(self.shard) == len(self.bucket) == rows
        assert self.payload_hashes is None or len(self.payload_hashes) == rows


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Found:
    """What the catalog knows of some fingerprints.

    Attributes:
        found: Whether an earlier batch saw the ID.
        payload_hashes: The hash that the newest such batch kept with it; ``NO_HASH``
            where none was kept.
        buckets: The bucket that the newest has filed it under; undefined where
            nothing was found.
    """

    found: BoolArray
    payload_hashes: U64Array
    buckets: I64Array


class CatalogView(Protocol):
    """The IDs of all live buckets, as they were before the batch."""

    def find(self, hi: U64Array, lo: U64Array) -> Found:
        """Look up fingerprints that are sorted and distinct, in every live bucket."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Claim:
    """The answer, row by row in the order of the candidates.

    Attributes:
        classes: ``RowClass`` of each row.
        winners: For a repeat of a row of the same batch, the index of that row;
            ``NO_WINNER`` for survivors and for repeats of earlier batches.
        survivors: Indexes of survivors and corrections, in the order of their
            fingerprints.
        buckets: The bucket to file each of them under.
    """

    classes: U8Array
    winners: I64Array
    survivors: I64Array
    buckets: I64Array


def claim(batch: Candidates, catalog: CatalogView, *, corrects: bool = False) -> Claim:
    """Let the first row of each new ID survive.

    Among rows of one ID the first by (place, offset) wins, unless the catalog
    holds the ID already: in any live bucket, because an event may be sent again with
    another event time. The others are duplicates, or conflicts if payload hashes were
    kept of both sides and differ.

    Args:
        batch: The rows, with payload hashes if the batch corrects.
        catalog: What was there before.
        corrects: Whether the first row of an ID that the catalog holds is a correction
            unless it has the very payload of the catalog. One of which the catalog
            keeps no hash may be the same or not: putting it in the other's place is
            right in both cases. The further rows are held against the first.
    """
    hi = np.ascontiguousarray(batch.fingerprints[:, 0])
    lo = np.ascontiguousarray(batch.fingerprints[:, 1])
    order = fingerprint_order(hi, lo, batch.place, batch.offset)
    hi, lo = hi[order], lo[order]
    first = first_of_each(hi, lo)
    heads = np.flatnonzero(first)
    known = catalog.find(hi[heads], lo[heads])
    # The IDs that stay as the catalog has them.
    stands = known.found
    if corrects:
        assert batch.payload_hashes is not None, "what differs could not be told"
        # No row's hash is NO_HASH.
        stands = stands & (batch.payload_hashes[order[heads]] == known.payload_hashes)
    corrected = known.found & ~stands

    in_order = np.full(len(order), RowClass.SURVIVOR, dtype=np.uint8)
    winners = np.full(len(order), NO_WINNER, dtype=np.int64)
    repeats = np.flatnonzero(~first)
    if repeats.size:
        group = np.searchsorted(heads, repeats, side="right") - 1
        _assert_rows_are_distinct(batch, order, repeats)
        winner = order[heads[group]]
        winners[order[repeats]] = np.where(stands[group], NO_WINNER, winner)
        before = known.payload_hashes[group]
        if batch.payload_hashes is not None:
            before = np.where(stands[group], before, batch.payload_hashes[winner])
        in_order[repeats] = _class_of_repeats(batch, order[repeats], before)
    seen = heads[stands]
    in_order[seen] = _class_of_repeats(batch, order[seen], known.payload_hashes[stands])
    in_order[heads[corrected]] = RowClass.CORRECTION
    filed = batch.bucket[order]
    again = heads[corrected]
    filed[again] = np.maximum(filed[again], known.buckets[corrected])
    classes = np.empty_like(in_order)
    classes[order] = in_order
    survives = (in_order == RowClass.SURVIVOR) | (in_order == RowClass.CORRECTION)
    return Claim(
        classes=classes,
        winners=winners,
        survivors=order[survives],
        buckets=filed[survives],
    )


def find_known(batch: Candidates, catalog: CatalogView) -> BoolArray:
    """Tell which rows have an ID that the catalog holds."""
    hi = np.ascontiguousarray(batch.fingerprints[:, 0])
    lo = np.ascontiguousarray(batch.fingerprints[:, 1])
    order = fingerprint_order(hi, lo)
    hi, lo = hi[order], lo[order]
    first = first_of_each(hi, lo)
    known = np.empty(len(order), dtype=np.bool_)
    known[order] = catalog.find(hi[first], lo[first]).found[np.cumsum(first) - 1]
    return known


def new_runs(claim: Claim, candidates: Candidates) -> list[Run]:
    """Return one sorted run per bucket and shard of the survivors."""
    rows, filed = claim.survivors, claim.buckets
    if not rows.size:
        return []
    buckets, bucket_code = np.unique(filed, return_inverse=True)
    shards, shard_code = np.unique(candidates.shard[rows], return_inverse=True)
    code = bucket_code * len(shards) + shard_code
    if len(buckets) * len(shards) > 1:
        # Survivors are in the order of their fingerprints; a stable sort keeps it.
        by_code = np.argsort(code, kind="stable")
        rows, filed, code = rows[by_code], filed[by_code], code[by_code]
    starts = np.flatnonzero(np.diff(code, prepend=-1))
    parts = np.split(rows, starts[1:].tolist())
    return [
        _run_of(candidates, members, int(bucket))
        for members, bucket in zip(parts, filed[starts], strict=True)
    ]


def _run_of(candidates: Candidates, rows: I64Array, bucket: int) -> Run:
    hashes = candidates.payload_hashes
    return Run(
        bucket=bucket,
        shard=int(candidates.shard[rows[0]]),
        fingerprints=candidates.fingerprints[rows],
        payload_hashes=None if hashes is None else hashes[rows],
    )


def _class_of_repeats(batch: Candidates, rows: I64Array, before: U64Array) -> U8Array:
    classes = np.full(len(rows), RowClass.DUPLICATE, dtype=np.uint8)
    if batch.payload_hashes is not None:
        differs = (batch.payload_hashes[rows] != before) & (before != NO_HASH)
        classes[differs] = RowClass.CONFLICT
    return classes


def _assert_rows_are_distinct(
    batch: Candidates, order: I64Array, repeats: I64Array
) -> None:
    one, other = order[repeats - 1], order[repeats]
    same = batch.place[one] == batch.place[other]
    same &= batch.offset[one] == batch.offset[other]
    assert not same.any(), "one position of Kafka was handed in twice"
    assert (batch.shard[one] == batch.shard[other]).all(), "one ID, two shards"
