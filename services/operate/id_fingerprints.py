"""Turns an ID as a person writes it into fingerprints of the seen-ID catalog."""

from __future__ import annotations

from tallyweir.sinks.seen_ids.id_hash import fingerprint_of

_INT64 = range(-(1 << 63), 1 << 63)


def fingerprints_of(key: bytes, event_id: str, source: str | None) -> tuple[bytes, ...]:
    """Return the fingerprints under which the catalog may file an ID.

    Args:
        key: Key of the installation.
        event_id: The ID as a person writes it: text, or a number.
        source: The ``ce_source`` that a ``ce_id`` is filed with. None when the user
            gave no source: the IDs of the pipeline may have no source, or the event
            came without one.
    """
    ids: list[list[str | int]] = [[source or "", event_id]]
    if source is None:
        ids.append([event_id])
        number = _int64(event_id)
        if number is not None:
            ids.append([number])
    return tuple(fingerprint_of(values, key) for values in ids)


def _int64(text: str) -> int | None:
    try:
        number = int(text)
    except ValueError:
        return None
    return number if number in _INT64 else None
