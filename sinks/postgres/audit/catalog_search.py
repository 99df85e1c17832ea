"""Looks an ID up in the seen-ID catalog, as a person who has only its text."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

from psycopg import Connection
from psycopg.rows import DictRow, TupleRow

from sinks.postgres.audit.audited_pipeline import AuditedPipeline, fetch, fetch_one
from sinks.postgres.statements import load_statements

_EXPLANATION = load_statements("sinks.postgres.audit", "explanation.sql")
_CATALOG = load_statements("sinks.postgres.audit", "catalog.sql")

_FINGERPRINT_BYTES = 16

#: From the installation's key and an ID to the 16-byte fingerprints that it may be
#: filed under: the text that a person types may stand for a number.
FingerprintProbe = Callable[[bytes, str], Sequence[bytes]]


def find_in_catalog(
    connection: Connection[TupleRow],
    pipeline: AuditedPipeline,
    event_id: str,
    fingerprint_probe: FingerprintProbe,
) -> list[DictRow]:
    """Return the runs that hold an ID, inside of the caller's snapshot."""
    if pipeline.horizon_s is None:
        return []
    installation = fetch_one(connection, _EXPLANATION["fingerprint_key"])
    return [
        run
        for wanted in fingerprint_probe(installation["fingerprint_key"], event_id)
        for run in fetch(
            connection,
            _CATALOG["covering_runs"],
            pipeline=pipeline.name,
            fingerprint=wanted,
        )
        if holds_fingerprint(run["fingerprints"], wanted)
    ]


def holds_fingerprint(run: bytes, wanted: bytes) -> bool:
    """Search a sorted run of 16-byte fingerprints."""
    ids = len(run) // _FINGERPRINT_BYTES

    def at(index: int) -> bytes:
        return run[index * _FINGERPRINT_BYTES : (index + 1) * _FINGERPRINT_BYTES]

    place = bisect_left(range(ids), wanted, key=at)
    return place < ids and at(place) == wanted
