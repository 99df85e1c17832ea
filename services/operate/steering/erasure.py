"""Erases events by their producers' IDs, and reports what was erased."""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import Connection
from psycopg.rows import TupleRow

from tallyweir.services.operate.id_fingerprints import fingerprints_of
from tallyweir.sinks.postgres import steering
from tallyweir.sinks.postgres.steering import ActRequest, Erasure, ErasureRequest, Tombs

#: Most positions that are printed; the receipt has all.
_POSITIONS_TOLD = 20


def erase_events(  # noqa: PLR0913 - an act and what names the events
    home: Connection[TupleRow],
    act: ActRequest,
    *,
    ids: Sequence[str] = (),
    source: str | None = None,
    where: tuple[str, str] | None = None,
    keys: Sequence[str] = (),
    receipt: Tombs | None = None,
) -> Erasure:
    """Erase events and keys, by ``steering.erase``.

    Args:
        home: A connection to the home, by a role that may change its ledger.
        act: The pipeline, and why.
        ids: Producers' IDs.
        source: Their ``ce_source``, if they belong to sources.
        where: A table of the pipeline, and a condition on its rows; erases their
            events.
        keys: Keys of functions' state.
        receipt: Tombstones of former erasures.

    Raises:
        ConfigurationError: As ``steering.erase``.
        RetryableError: As ``steering.erase``.
    """

    def fingerprints(secret: bytes, text: str) -> Sequence[bytes]:
        return fingerprints_of(secret, text, source)

    request = ErasureRequest(
        act=act,
        ids=tuple(ids),
        has_source=source is not None,
        where=where,
        keys=tuple(keys),
        receipt=receipt,
    )
    return steering.erase(home, request, fingerprints)


def erasure_told(pipeline: str, erasure: Erasure) -> tuple[str, ...]:
    """Report what was, or would be, erased, and where records still are."""
    lines = []
    for place, rows in erasure.rows.items():
        side = place.removeprefix("aside:")
        did = "blanked in" if side != place else "taken out of"
        lines.append(f"{rows} {'row' if rows == 1 else 'rows'} {did} {side}")
    lines.append(
        f"{erasure.ids} IDs and {len(erasure.positions)} positions of pipeline "
        f"{pipeline} are under a tombstone of act {erasure.epoch}."
    )
    if not erasure.positions:
        return tuple(lines)
    more = len(erasure.positions) - _POSITIONS_TOLD
    return (
        *lines,
        "Kafka keeps the records until its retention expires, at:",
        *(
            f"  {topic}[{partition}] offset {offset}"
            for topic, partition, offset in erasure.positions[:_POSITIONS_TOLD]
        ),
        *([f"  and {more} more; see the receipt"] if more > 0 else []),
        "Kafka also has what the relay sent of these events, also as dead letters.",
    )
