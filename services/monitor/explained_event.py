"""What became of an event, as the monitor asks for it."""

from __future__ import annotations

from dataclasses import replace

from psycopg import Connection
from psycopg.rows import TupleRow

from services.id_fingerprints import fingerprints_of
from sinks.postgres import audit

#: Characters of an ID that somebody may ask for.
NAME_MAX = 200


def explained(
    connection: Connection[TupleRow], pipeline: str, event_id: str
) -> audit.Explanation:
    """Find every trace of an ID, with what its records hold.

    Raises:
        TallyweirError: As ``audit.explain``.
    """

    def probe(key: bytes, text: str) -> tuple[bytes, ...]:
        return fingerprints_of(key, text, None)

    return audit.explain(connection, pipeline, event_id, probe)


def told_without_payloads(
    connection: Connection[TupleRow], pipeline: str, event_id: str
) -> dict[str, object]:
    """Tell what became of an event, without what its record holds.

    Raises:
        TallyweirError: As ``audit.explain``.
    """
    found = explained(connection, pipeline, event_id)
    bare = replace(
        found,
        sightings=tuple(
            replace(one, key=None, payload=None) for one in found.sightings
        ),
    )
    told = (
        audit.narrate(bare, lambda _payload: None)
        if bare.is_known
        else audit.narrate_unknown(bare, None)
    )
    return {"is_known": bare.is_known, "told": list(told)}
