"""The check for repeats: which rows of a batch hold an ID for the first time.

A claim is a pure function of the batch and of the catalog as it was before the batch:
asked again it answers the same, in whatever order the rows come, and a batch that is
not published leaves nothing behind.
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
        payload_hashes: The hash kept with it; ``NO_HASH`` where none was kept.
    """

    found: BoolArray
    payload_hashes: U64Array


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
        survivors: Indexes of the survivors, in the order of their fingerprints.
    """

    classes: U8Array
    winners: I64Array
    survivors: I64Array


def claim(batch: Candidates, catalog: CatalogView) -> Claim:
    """Let the first row of each new ID survive.

    Among rows of one ID the first by (place, offset) wins, unless the catalog
    holds the ID already: in any live bucket, because an event may be sent again with
    another event time. The others are duplicates, or conflicts if payload hashes were
    kept of both sides and differ.
    """
    hi = np.ascontiguousarray(batch.fingerprints[:, 0])
    lo = np.ascontiguousarray(batch.fingerprints[:, 1])
    order = fingerprint_order(hi, lo, batch.place, batch.offset)
    hi, lo = hi[order], lo[order]
    first = first_of_each(hi, lo)
    heads = np.flatnonzero(first)
    known = catalog.find(hi[heads], lo[heads])

    in_order = np.full(len(order), RowClass.SURVIVOR, dtype=np.uint8)
    winners = np.full(len(order), NO_WINNER, dtype=np.int64)
    repeats = np.flatnonzero(~first)
    if repeats.size:
        group = np.searchsorted(heads, repeats, side="right") - 1
        _assert_rows_are_distinct(batch, order, repeats)
        winner = order[heads[group]]
        winners[order[repeats]] = np.where(known.found[group], NO_WINNER, winner)
        in_order[repeats] = _class_of_repeats(
            batch, order[repeats], _hashes_before(batch, known, winner, group)
        )
    seen = heads[known.found]
    in_order[seen] = _class_of_repeats(
        batch, order[seen], known.payload_hashes[known.found]
    )
    classes = np.empty_like(in_order)
    classes[order] = in_order
    survivors = order[in_order == RowClass.SURVIVOR]
    return Claim(classes=classes, winners=winners, survivors=survivors)


def new_runs(claim: Claim, candidates: Candidates) -> list[Run]:
    """Return one sorted run per bucket and shard of the survivors."""
    rows = claim.survivors
    if not rows.size:
        return []
    buckets, bucket_code = np.unique(candidates.bucket[rows], return_inverse=True)
    shards, shard_code = np.unique(candidates.shard[rows], return_inverse=True)
    code = bucket_code * len(shards) + shard_code
    if len(buckets) * len(shards) > 1:
        # Survivors are in the order of their fingerprints; a stable sort keeps it.
        by_code = np.argsort(code, kind="stable")
        rows, code = rows[by_code], code[by_code]
    starts = np.flatnonzero(np.diff(code, prepend=-1))
    return [
        _run_of(candidates, members) for members in np.split(rows, starts[1:].tolist())
    ]


def _run_of(candidates: Candidates, rows: I64Array) -> Run:
    hashes = candidates.payload_hashes
    return Run(
        bucket=int(candidates.bucket[rows[0]]),
        shard=int(candidates.shard[rows[0]]),
        fingerprints=candidates.fingerprints[rows],
        payload_hashes=None if hashes is None else hashes[rows],
    )


def _hashes_before(
    batch: Candidates, known: Found, winner: I64Array, group: I64Array
) -> U64Array:
    """Return what the payload hash of each repeat is held against."""
    if batch.payload_hashes is None:
        return known.payload_hashes[group]
    return np.where(
        known.found[group], known.payload_hashes[group], batch.payload_hashes[winner]
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
