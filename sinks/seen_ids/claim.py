"""The check for repeats: which rows of a batch hold an ID for the first time.

The rows of a batch are in several tasks, each of which asks for its own rows' IDs. A
round of claims is one attempt to stage a batch: it knows the catalog as it was before
the batch, and what was asked in it so far. Of an ID that is new, the first row that
asks survives; who asks again for the same position, as a task that is run again does,
gets the same answer. A round that does not end in a publish is thrown away, and
nothing is left of it.

Which of an ID's rows in different tasks asks first is chance, as is the order of
different partitions of Kafka. Where the order of positions must count, as in a batch
run, a round that finds that an earlier position has asked later is followed by one in
which it is known from the beginning which position is the first.

A batch may correct what came before it. Then an ID can be in the catalog more than
once, and the entry of the newest batch is the one that counts. It is filed under the
latest bucket that the ID was ever filed under, so that no older entry outlives it: a
payload that was corrected never counts as new again while anything of its ID is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
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

U8Array = npt.NDArray[np.uint8]

NO_HASH = 0


class RowClass(IntEnum):
    """What a claim says of a row."""

    SURVIVOR = 0
    DUPLICATE = 1
    CONFLICT = 2
    #: Survives as well, in the place of an earlier event.
    CORRECTION = 3
    #: Would only correct, and there is nothing to correct.
    UNKNOWN = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidates:
    """The rows of a task that ask for their IDs, in the order of their fingerprints.

    No two rows share a position. Rows of one fingerprint are in the order of their
    positions. Buckets below the horizon were taken out before: they cannot be checked.

    Attributes:
        place: Number of each row's topic and partition.
        offset: Offset in it.
        bucket: Start of the row's bucket of event time, seconds since the epoch.
        hi: First word of each fingerprint.
        lo: Second word.
        payload_hashes: Shape (n,), none of them 0; None if the pipeline keeps none.
        only_corrects: Rows that ask only for IDs that the catalog holds; None if
            there are no such rows.
    """

    place: I64Array
    offset: I64Array
    bucket: I64Array
    hi: U64Array
    lo: U64Array
    payload_hashes: U64Array | None
    only_corrects: BoolArray | None = None

    def __post_init__(self) -> None:
        rows = len(self.place)
        assert len(self.offset) == len(self.bucket) == rows
        assert len(self.hi) == len(self.lo) == rows
        assert self.payload_hashes is None or len(self.payload_hashes) == rows
        assert self.only_corrects is None or len(self.only_corrects) == rows

    def __len__(self) -> int:
        return len(self.place)

    def order(self) -> I64Array:
        """Return the order that rows must be brought into before they ask."""
        return fingerprint_order(self.hi, self.lo, self.place, self.offset)

    def is_in_order(self) -> bool:
        """Tell whether the rows may ask, but for the order of repeats."""
        return bool((self.hi[1:] >= self.hi[:-1]).all())

    def is_head(self) -> BoolArray:
        """Mark the first row of each ID."""
        return first_of_each(self.hi, self.lo)

    def take(self, rows: I64Array | BoolArray) -> Candidates:
        """Return some of the rows."""
        hashes, only_corrects = self.payload_hashes, self.only_corrects
        return Candidates(
            place=self.place[rows],
            offset=self.offset[rows],
            bucket=self.bucket[rows],
            hi=self.hi[rows],
            lo=self.lo[rows],
            payload_hashes=None if hashes is None else hashes[rows],
            only_corrects=None if only_corrects is None else only_corrects[rows],
        )

    def only(self, rows: I64Array) -> Candidates:
        """Return some of the rows, which rise; all of them are not copied."""
        return self if len(rows) == len(self) else self.take(rows)

    def fingerprints(self, rows: I64Array) -> tuple[U64Array, U64Array]:
        """Return the words of some of the rows, as ``only`` does."""
        if len(rows) == len(self):
            return self.hi, self.lo
        return self.hi[rows], self.lo[rows]

    def all_asking(self) -> Candidates:
        """Return the same rows, none of which is left out any more."""
        return replace(self, only_corrects=None)

    @classmethod
    def joined(cls, parts: Sequence[Candidates]) -> Candidates:
        """Return the rows of several, which keep hashes all or none."""
        hashes = [part.payload_hashes for part in parts]
        kept = [column for column in hashes if column is not None]
        assert len(kept) in {0, len(parts)}, "some rows have hashes, others have not"
        return cls(
            place=np.concatenate([part.place for part in parts]),
            offset=np.concatenate([part.offset for part in parts]),
            bucket=np.concatenate([part.bucket for part in parts]),
            hi=np.concatenate([part.hi for part in parts]),
            lo=np.concatenate([part.lo for part in parts]),
            payload_hashes=np.concatenate(kept) if kept else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Found:
    """What the catalog knows of some fingerprints.

    Attributes:
        found: Whether an earlier batch saw the ID.
        payload_hashes: The hash that the newest such batch kept with it; ``NO_HASH``
            where none was kept.
        buckets: The bucket that the newest has filed it under; undefined where
            nothing was found.
        looked_up: How often an ID was searched for, which the filters had not spared.
        met: How many of these searches found it.
    """

    found: BoolArray
    payload_hashes: U64Array
    buckets: I64Array
    looked_up: int = 0
    met: int = 0


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
        buckets: The bucket to file each row under that survives; of other rows, any.
    """

    classes: U8Array
    buckets: I64Array

    @property
    def survives(self) -> BoolArray:
        """Tell which rows survive."""
        survives: BoolArray = self.classes == np.uint8(RowClass.SURVIVOR)
        survives |= self.classes == np.uint8(RowClass.CORRECTION)
        return survives


def new_runs(claim: Claim, candidates: Candidates) -> list[Run]:
    """Return one sorted run for each bucket of the survivors."""
    rows = np.flatnonzero(claim.survives)
    if not rows.size:
        return []
    filed = claim.buckets[rows]
    if filed.min() != filed.max():
        # Rows are in the order of their fingerprints; a stable sort keeps it.
        by_bucket = np.argsort(filed, kind="stable")
        rows, filed = rows[by_bucket], filed[by_bucket]
    starts = np.flatnonzero(np.diff(filed, prepend=filed[0] - 1))
    hashes = candidates.payload_hashes
    return [
        Run(
            bucket=int(bucket),
            fingerprints=np.column_stack(
                [candidates.hi[members], candidates.lo[members]]
            ),
            payload_hashes=None if hashes is None else hashes[members],
        )
        for members, bucket in zip(
            np.split(rows, starts[1:].tolist()), filed[starts].tolist(), strict=True
        )
    ]
