"""A catalog in a folder, one file per batch, that several processes can read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from sinks.seen_ids.claim import Candidates
from sinks.seen_ids.run import Run


class FolderCatalog:
    """Stands for the table of runs; what is appended is committed.

    Attributes:
        fetched: How many runs were handed out.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.fetched = 0

    def append(self, sequence: int, runs: list[Run]) -> None:
        rows = []
        for run in runs:
            fingerprints, hashes = run.encode()
            rows.append(
                {
                    "bucket": run.bucket,
                    "shard": run.shard,
                    "fingerprints": fingerprints.hex(),
                    "payload_hashes": None if hashes is None else hashes.hex(),
                }
            )
        unfinished = self._folder / f"{sequence}.unfinished"
        unfinished.write_text(json.dumps(rows))
        unfinished.rename(self._folder / f"{sequence:09d}.json")

    def fetch_runs(
        self,
        *,
        shard: int,
        after_sequence: int,
        through_sequence: int,
        live_from_bucket: int,
    ) -> Iterator[tuple[int, Run]]:
        for path in sorted(self._folder.glob("*.json")):
            sequence = int(path.stem)
            if not after_sequence < sequence <= through_sequence:
                continue
            for row in json.loads(path.read_text()):
                if row["shard"] == shard and row["bucket"] >= live_from_bucket:
                    self.fetched += 1
                    yield sequence, _run_of(row)


def _run_of(row: dict[str, object]) -> Run:
    hashes = row["payload_hashes"]
    return Run.decode(
        bucket=int(str(row["bucket"])),
        shard=int(str(row["shard"])),
        fingerprints=bytes.fromhex(str(row["fingerprints"])),
        payload_hashes=None if hashes is None else bytes.fromhex(str(hashes)),
    )


def run_of(
    pairs: list[tuple[int, int]],
    *,
    bucket: int = 0,
    shard: int = 0,
    payload_hash: int | None = None,
) -> Run:
    """Return a run of some fingerprints, in any order."""
    hashes = None
    if payload_hash is not None:
        hashes = np.full(len(pairs), payload_hash, dtype=np.uint64)
    return Run(
        bucket=bucket,
        shard=shard,
        fingerprints=np.array(sorted(pairs), dtype=np.uint64),
        payload_hashes=hashes,
    )


def candidates_of(
    rows: list[tuple[int, int, int, tuple[int, int], int]],
    *,
    shard: int = 0,
    keep_hashes: bool = True,
) -> Candidates:
    """Return rows of (partition, offset, bucket, fingerprint, payload hash)."""
    hashes = np.array([row[4] for row in rows], dtype=np.uint64)
    pairs = np.array([row[3] for row in rows], dtype=np.uint64).reshape(-1, 2)
    return Candidates(
        place=np.array([row[0] for row in rows], dtype=np.int64),
        offset=np.array([row[1] for row in rows], dtype=np.int64),
        shard=np.full(len(rows), shard, dtype=np.int32),
        bucket=np.array([row[2] for row in rows], dtype=np.int64),
        fingerprints=pairs,
        payload_hashes=hashes if keep_hashes else None,
    )
