"""A run: IDs of one batch and one bucket, sorted, as one row of the catalog.

Runs are written in the publish transaction and never changed. A run is stored as two
``bytea`` columns: ``fingerprints``, 16 big-endian bytes each, strictly sorted, and
``payload_hashes``, 8 big-endian bytes each in the same order, or NULL.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tallyweir.sinks.protocol.errors import FatalError
from tallyweir.sinks.seen_ids.id_hash import FINGERPRINT_BYTES, from_bytes, to_bytes
from tallyweir.sinks.seen_ids.ordering import U64Array, is_strictly_sorted

PAYLOAD_HASH_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run:
    """Some of the IDs that one batch saw first.

    Attributes:
        bucket: Start of the bucket of event time, seconds since the epoch.
        fingerprints: Shape (n, 2), strictly sorted, never empty.
        payload_hashes: Shape (n,), or None if the pipeline keeps no hashes.
    """

    bucket: int
    fingerprints: U64Array
    payload_hashes: U64Array | None

    def __post_init__(self) -> None:
        assert len(self.fingerprints) > 0, "a batch without new IDs has no run"
        assert self.fingerprints.shape[1:] == (2,)
        if self.payload_hashes is not None:
            assert len(self.payload_hashes) == len(self.fingerprints)

    def __len__(self) -> int:
        return len(self.fingerprints)

    @property
    def first(self) -> bytes:
        """The smallest fingerprint, as stored."""
        return to_bytes(self.fingerprints[:1])

    @property
    def last(self) -> bytes:
        """The largest fingerprint, as stored."""
        return to_bytes(self.fingerprints[-1:])

    def encode(self) -> tuple[bytes, bytes | None]:
        """Return the columns ``fingerprints`` and ``payload_hashes`` of the row."""
        hashes = self.payload_hashes
        stored = None if hashes is None else hashes.astype(">u8").tobytes()
        return to_bytes(self.fingerprints), stored

    @classmethod
    def decode(
        cls,
        *,
        bucket: int,
        fingerprints: bytes | memoryview,
        payload_hashes: bytes | memoryview | None,
    ) -> Run:
        """Read a row of the catalog.

        Raises:
            FatalError: ``SEEN_IDS_RUN_DAMAGED``: ``encode`` cannot have written this
                row, so IDs in it could be missed.
        """
        if len(fingerprints) == 0 or len(fingerprints) % FINGERPRINT_BYTES:
            raise damaged(bucket, f"{len(fingerprints)} bytes of fingerprints")
        pairs = from_bytes(fingerprints)
        if not is_strictly_sorted(pairs[:, 0], pairs[:, 1]):
            raise damaged(bucket, "fingerprints out of order")
        hashes: U64Array | None = None
        if payload_hashes is not None:
            if len(payload_hashes) != PAYLOAD_HASH_BYTES * len(pairs):
                saw = f"{len(payload_hashes)} bytes of hashes for {len(pairs)} IDs"
                raise damaged(bucket, saw)
            hashes = np.frombuffer(payload_hashes, dtype=">u8").astype(np.uint64)
        return cls(bucket=bucket, fingerprints=pairs, payload_hashes=hashes)


def damaged(bucket: int, saw: str) -> FatalError:
    """Return the error for a damaged row of the catalog."""
    return FatalError(
        "SEEN_IDS_RUN_DAMAGED",
        saw=f"A row of bucket {bucket} of the seen-ID catalog holds {saw}.",
        why="IDs in a damaged row could be missed, and events counted twice.",
        fix="Restore the seen-ID catalog from a backup together with its pipeline.",
    )


def ids_by_bucket(runs: Iterable[Run]) -> dict[int, int]:
    """Count the IDs of runs by their buckets."""
    counted: Counter[int] = Counter()
    for run in runs:
        counted[run.bucket] += len(run)
    return dict(counted)
