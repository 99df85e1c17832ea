"""What tasks ask about IDs, and the answers: new, a repeat, a conflict, a correction.

``round_claims`` decides the answers, by these rules.

The rows of a batch are spread over several tasks, and each task asks for the IDs of its
own rows. A round of claims is one attempt to stage a batch: it knows the catalog as it
was before the batch, and all earlier questions of the round. If an ID is new, the first
row that asks survives. A task that is run again asks for the same positions and gets
the same answers. If a round does not end in a publish, it is thrown away and leaves no
trace.

If an ID has rows in several tasks, chance decides which asks first, as it decides the
order of Kafka's partitions. In a batch run the order of positions must count. If a
round finds there that an earlier position has asked later, another round follows, which
knows the first position of each ID from the beginning.

A batch may correct earlier events. Then an ID can be in the catalog more than once, and
the entry of the newest batch counts. It is filed under the latest bucket that the ID
was ever filed under, so that no older entry outlives it: while any entry of the ID is
kept, a corrected payload never counts as new again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tallyweir.sinks.seen_ids.ordering import (
    BoolArray,
    I64Array,
    U64Array,
    fingerprint_order,
    first_of_each,
)
from tallyweir.sinks.seen_ids.run import Run

U8Array = npt.NDArray[np.uint8]

NO_HASH = 0


class RowClass(IntEnum):
    """What a claim says about a row."""

    SURVIVOR = 0
    DUPLICATE = 1
    CONFLICT = 2
    #: Survives too, and replaces an earlier event.
    CORRECTION = 3
    #: Could only correct, but the catalog does not hold its ID.
    UNKNOWN = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidates:
    """The rows of a task that ask for their IDs, in the order of their fingerprints.

    No two rows share a position. Rows of one fingerprint are in the order of their
    positions. Rows of buckets below the horizon are left out: they cannot be checked.

    Attributes:
        place: Number of each row's topic and partition.
        offset: Offset in it.
        bucket: Start of the row's bucket of event time, seconds since the epoch.
        hi: First word of each fingerprint.
        lo: Second word.
        payload_hashes: Shape (n,), never 0; None if the pipeline keeps no hashes.
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
        """Tell whether the first words are sorted, which a question needs."""
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
        """Return some of the rows, given in rising order; all rows cost no copy."""
        return self if len(rows) == len(self) else self.take(rows)

    def fingerprints(self, rows: I64Array) -> tuple[U64Array, U64Array]:
        """Return the words of some of the rows, as ``only`` does."""
        if len(rows) == len(self):
            return self.hi, self.lo
        return self.hi[rows], self.lo[rows]

    def all_asking(self) -> Candidates:
        """Return the same rows, without ``only_corrects``."""
        return replace(self, only_corrects=None)

    @classmethod
    def joined(cls, parts: Sequence[Candidates]) -> Candidates:
        """Join several; either all of them have hashes or none has."""
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
    """What the catalog knows about some fingerprints.

    Attributes:
        found: Whether an earlier batch saw the ID.
        payload_hashes: The hash that the newest of these batches kept with the ID;
            ``NO_HASH`` if it kept no hash.
        buckets: The bucket under which that batch has filed the ID; undefined if the
            ID was not found.
        looked_up: Number of searches that the filters could not spare.
        met: Number of these searches that found the ID.
    """

    found: BoolArray
    payload_hashes: U64Array
    buckets: I64Array
    looked_up: int = 0
    met: int = 0


class CatalogView(Protocol):
    """The IDs of all live buckets, as they were before the batch."""

    def find(self, hi: U64Array, lo: U64Array) -> Found:
        """Look up sorted, distinct fingerprints in every live bucket."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClaimAnswer:
    """The answer, row by row in the order of the candidates.

    Attributes:
        classes: ``RowClass`` of each row.
        buckets: The bucket to file each surviving row under; undefined for other rows.
    """

    classes: U8Array
    buckets: I64Array

    @property
    def survives(self) -> BoolArray:
        """Tell which rows survive."""
        survives: BoolArray = self.classes == np.uint8(RowClass.SURVIVOR)
        survives |= self.classes == np.uint8(RowClass.CORRECTION)
        return survives


def new_runs(claim: ClaimAnswer, candidates: Candidates) -> list[Run]:
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
