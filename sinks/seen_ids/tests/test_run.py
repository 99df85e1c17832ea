"""A run survives the catalog's columns, and damage does not pass."""

from __future__ import annotations

import numpy as np
import pytest

from tallyweir.sinks.protocol.errors import FatalError
from tallyweir.sinks.seen_ids.run import Run
from tallyweir.sinks.seen_ids.tests.catalog import run_of

PAIRS = [(2**64 - 1, 0), (1, 2**64 - 1), (1, 2)]


@pytest.mark.parametrize("payload_hash", [None, 2**63 + 5])
def test_a_run_comes_back_from_its_columns(payload_hash: int | None) -> None:
    """Encoding and decoding lose nothing."""
    run = run_of(PAIRS, bucket=3600, payload_hash=payload_hash)
    fingerprints, hashes = run.encode()
    back = Run.decode(bucket=3600, fingerprints=fingerprints, payload_hashes=hashes)
    assert back.fingerprints.tolist() == run.fingerprints.tolist()
    assert (back.bucket, len(back)) == (3600, 3)
    if payload_hash is None:
        assert back.payload_hashes is None
    else:
        assert run.payload_hashes is not None
        assert back.payload_hashes is not None
        assert np.array_equal(back.payload_hashes, run.payload_hashes)


def test_first_and_last_are_the_ends_of_the_column() -> None:
    """The catalog can be asked for a range without opening the column."""
    run = run_of(PAIRS)
    stored, _ = run.encode()
    assert (run.first, run.last) == (stored[:16], stored[-16:])


@pytest.mark.parametrize(
    ("fingerprints", "hashes"),
    [
        (b"", None),
        (bytes(15), None),
        (bytes(32), None),
        (b"\2" * 16 + b"\1" * 16, None),
        (b"\1" * 16, bytes(16)),
    ],
    ids=["empty", "torn", "repeated", "unsorted", "too many hashes"],
)
def test_a_damaged_row_is_refused(fingerprints: bytes, hashes: bytes | None) -> None:
    """Search in a damaged run would miss IDs without a sign."""
    with pytest.raises(FatalError, match="SEEN_IDS_RUN_DAMAGED"):
        Run.decode(bucket=0, fingerprints=fingerprints, payload_hashes=hashes)
