"""Finds who had an ID erased, and when: all that is left to tell of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from psycopg import Connection
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.audit.why.catalog_search import FingerprintProbe
from tallyweir.sinks.postgres.ledger.audited_pipeline import fetch, fetch_one
from tallyweir.sinks.postgres.server.statements import load_statements

_EXPLANATION = load_statements("tallyweir.sinks.postgres.audit.why", "explanation.sql")


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
