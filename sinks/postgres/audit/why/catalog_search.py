"""Looks up an ID by its fingerprints: in the seen-ID catalog and among erasures.

The acts that erased an ID are all that is left to tell of it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from psycopg import Connection
from psycopg.rows import DictRow, TupleRow

from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    AuditedPipeline,
    fetch,
    fetch_one,
)
from tallyweir.sinks.postgres.server.statements import load_statements

_EXPLANATION = load_statements("tallyweir.sinks.postgres.audit.why", "explanation.sql")
_CATALOG = load_statements("tallyweir.sinks.postgres.audit", "catalog.sql")

_FINGERPRINT_BYTES = 16
_SEQUENCE_BYTES = 4

#: Takes the installation's key and an ID; returns the 16-byte fingerprints under which
#: the ID may be filed. There are several because the text may stand for a number.
FingerprintProbe = Callable[[bytes, str], Sequence[bytes]]


def find_in_catalog(
    connection: Connection[TupleRow],
    pipeline: AuditedPipeline,
    event_id: str,
    fingerprint_probe: FingerprintProbe,
) -> list[DictRow]:
    """Return the entries of an ID, inside the caller's snapshot.

    Each entry has the bucket and the batch (``sequence``) that filed the ID there.
    """
    if pipeline.horizon_s is None:
        return []
    installation = fetch_one(connection, _EXPLANATION["fingerprint_key"])
    return [
        {"bucket": run["bucket"], "sequence": sequence}
        for wanted in fingerprint_probe(installation["fingerprint_key"], event_id)
        for run in fetch(
            connection,
            _CATALOG["covering_runs"],
            pipeline=pipeline.name,
            fingerprint=wanted,
        )
        for sequence in _batches_of(run, wanted)
    ]


def _batches_of(run: DictRow, wanted: bytes) -> list[int]:
    """Return the batches under which a run or a chunk has an ID."""
    begin, end = places_of(run["fingerprints"], wanted)
    if run["sequences"] is None:
        return [run["sequence"]] * (end - begin)
    return [
        run["oldest_sequence"]
        + int.from_bytes(
            run["sequences"][at * _SEQUENCE_BYTES : (at + 1) * _SEQUENCE_BYTES]
        )
        for at in range(begin, end)
    ]


def places_of(run: bytes, wanted: bytes) -> tuple[int, int]:
    """Search sorted 16-byte fingerprints; return where one begins and ends."""
    ids = len(run) // _FINGERPRINT_BYTES

    def at(index: int) -> bytes:
        return run[index * _FINGERPRINT_BYTES : (index + 1) * _FINGERPRINT_BYTES]

    return (
        bisect_left(range(ids), wanted, key=at),
        bisect_right(range(ids), wanted, key=at),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasedBy:
    """The act that erased everything about an ID."""

    epoch: int
    done_at: datetime
    done_by: str
    reason: str


def find_erasures(
    connection: Connection[TupleRow],
    pipeline: str,
    event_id: str,
    fingerprint_probe: FingerprintProbe,
) -> tuple[ErasedBy, ...]:
    """Return the acts that erased an ID, inside the caller's snapshot."""
    installation = fetch_one(connection, _EXPLANATION["fingerprint_key"])
    probed = fingerprint_probe(installation["fingerprint_key"], event_id)
    rows = fetch(
        connection,
        _EXPLANATION["erasures"],
        pipeline=pipeline,
        fingerprints=list(probed),
    )
    return tuple(ErasedBy(**row) for row in rows)
