"""Explains what became of an event, for the monitor."""

from __future__ import annotations

from dataclasses import replace

from psycopg import Connection
from psycopg.rows import TupleRow

from tallyweir.services.operate.id_fingerprints import fingerprints_of
from tallyweir.sinks.postgres import audit
from tallyweir.sinks.postgres.audit.fate import Fate

#: Most characters of an ID in a request.
NAME_MAX = 200


def explained(
    connection: Connection[TupleRow], pipeline: str, event_id: str
) -> audit.Explanation:
    """Find every trace of an ID, with the content of its records.

    Raises:
        TallyweirError: As ``audit.explain``.
    """

    def probe(key: bytes, text: str) -> tuple[bytes, ...]:
        return fingerprints_of(key, text, None)

    return audit.explain(connection, pipeline, event_id, probe)


def told_without_payloads(
    connection: Connection[TupleRow],
    pipeline: str,
    event_id: str,
    *,
    with_details: bool,
) -> dict[str, object]:
    """Tell what became of an event, without the content of its record.

    Args:
        connection: A connection to the home, not inside a transaction. It only reads.
        pipeline: Name of the pipeline.
        event_id: The producer's ID.
        with_details: Include the detail of a dead letter, which may quote its record.

    Raises:
        TallyweirError: As ``audit.explain``.
    """
    found = explained(connection, pipeline, event_id)
    bare = replace(
        found,
        sightings=tuple(
            replace(
                one,
                key=None,
                payload=None,
                # The detail of a filtered event is the condition in the pipeline's
                # file.
                detail=None
                if one.fate is Fate.DEAD and not with_details
                else one.detail,
            )
            for one in found.sightings
        ),
    )
    told = (
        audit.narrate(bare, lambda _payload: None)
        if bare.is_known
        else audit.narrate_unknown(bare, None)
    )
    return {"is_known": bare.is_known, "told": list(told)}
