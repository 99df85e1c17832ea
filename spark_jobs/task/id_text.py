"""Writes the IDs of events as text, for people to search by."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tallyweir.spark_jobs.source import event_columns as named


def id_text(rows: pa.Table) -> pa.ChunkedArray:
    """Write the producers' IDs as text, for people to search by."""
    identity = rows.column(named.EVENT_ID)
    if pa.types.is_binary(identity.type):
        return pa.chunked_array([[value.hex() for value in identity.to_pylist()]])
    return identity.cast(pa.string())


def readable_ids(rows: pa.Table, read: Sequence[object]) -> pa.Array:
    """Write the IDs of dead letters as text; null where no ID could be read.

    Args:
        rows: The dead letters.
        read: IDs that were read from rows that are not events; None for other rows.
    """
    identity = rows.column(named.EVENT_ID)
    if pa.types.is_string(identity.type):
        identity = identity.cast(pa.binary())
    values = zip(identity.to_pylist(), read, strict=True)
    return pa.array([_readable(i if r is None else r) for i, r in values], pa.string())


def _readable(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, bytes):
        return str(value)
    return value.decode("utf-8", errors="replace").replace("\x00", "\ufffd")[:256]
