"""Entries of the catalog, each with the batch that made it, to merge into chunks.

A chunk is stored like a run, with a third ``bytea`` column, ``sequences``: for each
entry 4 big-endian bytes, the batch counted from the oldest of the bucket's chunks. So a
merge keeps all that the runs said, and merged entries can be shown as they were after
any batch. An ID that was corrected has an entry for each time, the oldest first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tallyweir.sinks.seen_ids.claim import NO_HASH
from tallyweir.sinks.seen_ids.id_hash import FINGERPRINT_BYTES, from_bytes, to_bytes
from tallyweir.sinks.seen_ids.ordering import (
    BoolArray,
    I64Array,
    U64Array,
    fingerprint_order,
    last_of_each,
)
from tallyweir.sinks.seen_ids.run import PAYLOAD_HASH_BYTES, damaged

SEQUENCE_BYTES = 4
_HASH_TYPE = np.dtype(">u8")
_SEQUENCE_TYPE = np.dtype(">u4")

Stored = bytes | memoryview


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Entries:
    """Entries of one bucket, sorted by fingerprint, then by batch.

    Attributes:
        hi: First words of the fingerprints.
        lo: Second words.
        payload_hashes: ``NO_HASH`` if no hash was kept.
        sequences: The batch that made each entry.
    """

    hi: U64Array
    lo: U64Array
    payload_hashes: U64Array
    sequences: I64Array

    def __len__(self) -> int:
        return len(self.hi)

    def take(self, rows: I64Array | BoolArray | slice) -> Entries:
        """Return some of the entries."""
        return Entries(
            hi=self.hi[rows],
            lo=self.lo[rows],
            payload_hashes=self.payload_hashes[rows],
            sequences=self.sequences[rows],
        )

    def sorted(self) -> Entries:
        """Return the entries in order, whatever their order was."""
        return self.take(fingerprint_order(self.hi, self.lo, self.sequences))

    def newest(self) -> Entries:
        """Return the last entry of each ID, which is the one that counts."""
        last = last_of_each(self.hi, self.lo)
        # Few IDs are ever corrected, so most columns need not be copied.
        return self if last.all() else self.take(last)

    @classmethod
    def joined(cls, parts: Sequence[Entries]) -> Entries:
        """Return the entries of several, one after the other."""
        return cls(
            hi=np.concatenate([part.hi for part in parts]),
            lo=np.concatenate([part.lo for part in parts]),
            payload_hashes=np.concatenate([part.payload_hashes for part in parts]),
            sequences=np.concatenate([part.sequences for part in parts]),
        )

    def encode(self, *, oldest: int) -> tuple[bytes, bytes | None, bytes]:
        """Return ``fingerprints``, ``payload_hashes`` and ``sequences`` of a row."""
        hashes = self.payload_hashes
        kept = bool((hashes != NO_HASH).any())
        return (
            to_bytes(np.column_stack([self.hi, self.lo])),
            hashes.astype(_HASH_TYPE).tobytes() if kept else None,
            (self.sequences - oldest).astype(_SEQUENCE_TYPE).tobytes(),
        )

    @classmethod
    def decode(
        cls,
        *,
        bucket: int,
        oldest: int,
        fingerprints: Stored,
        payload_hashes: Stored | None,
        sequences: Stored | None,
    ) -> Entries:
        """Read a row of the catalog.

        Args:
            bucket: The bucket to name in an error.
            oldest: The batch that ``sequences`` are counted from.
            fingerprints: As stored.
            payload_hashes: As stored.
            sequences: As stored; None for a run, whose entries are all of ``oldest``.

        Raises:
            FatalError: ``SEEN_IDS_RUN_DAMAGED``: the row differs from any row that
                ``encode`` could have written.
        """
        if len(fingerprints) == 0 or len(fingerprints) % FINGERPRINT_BYTES:
            raise damaged(bucket, f"{len(fingerprints)} bytes of fingerprints")
        hi, lo = from_bytes(fingerprints).T
        # Equal first words are rare, and only they need their second ones compared.
        at = np.flatnonzero(hi[1:] <= hi[:-1])
        if ((hi[at] != hi[at + 1]) | (lo[at] > lo[at + 1])).any():
            raise damaged(bucket, "fingerprints out of order")
        hashes = np.full(len(hi), NO_HASH, dtype=np.uint64)
        if payload_hashes is not None:
            _check_length(bucket, "hashes", payload_hashes, PAYLOAD_HASH_BYTES, len(hi))
            hashes = np.frombuffer(payload_hashes, dtype=_HASH_TYPE).astype(np.uint64)
        batches = np.full(len(hi), oldest, dtype=np.int64)
        if sequences is not None:
            _check_length(bucket, "sequences", sequences, SEQUENCE_BYTES, len(hi))
            batches += np.frombuffer(sequences, dtype=_SEQUENCE_TYPE)
        return cls(hi=hi, lo=lo, payload_hashes=hashes, sequences=batches)


def _check_length(bucket: int, what: str, stored: Stored, each: int, ids: int) -> None:
    if len(stored) != each * ids:
        raise damaged(bucket, f"{len(stored)} bytes of {what} for {ids} IDs")
