"""From an ID as a person writes it to what the seen-ID catalog may file it under."""

from __future__ import annotations

from sinks.seen_ids.id_hash import fingerprint_of

_INT64 = range(-(1 << 63), 1 << 63)


def fingerprints_of(key: bytes, event_id: str, source: str | None) -> tuple[bytes, ...]:
    """Return what the catalog may file an ID under.

    Args:
        key: The installation's.
        event_id: As a person writes it: text, or a number.
        source: The ``ce_source`` that a ``ce_id`` is filed with. None when the user
            gave none: the pipeline may have IDs without, and an event may have come
            without.
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
