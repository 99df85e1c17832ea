"""Leaves out the events that were erased, wherever and however often they come again.

They are filtered, under a condition of that name, and nothing of them is kept but the
position: no ID, no payload, no dead letter.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sinks.seen_ids.fingerprint import fingerprint
from sinks.seen_ids.ordering import U64Array
from sinks.seen_ids.tombstones import Tombstones
from spark_jobs.source import event_columns as named
from spark_jobs.source.source_places import SourcePlaces
from spark_jobs.task.classified_events import ClassifiedEvents, EventClass, I64Array

#: What the side table of filtered events has as their condition.
ERASED = "erased"


def mark_erased(
    events: ClassifiedEvents, tombstones: Tombstones, key: bytes, places: SourcePlaces
) -> None:
    """Filter the events that were erased, whatever else was to become of them.

    Args:
        events: Those of a task; none has claimed its ID yet.
        tombstones: What was erased.
        key: The installation's secret for fingerprints.
        places: Where the events come from, by the numbers of the frame.
    """
    is_erased = np.zeros(len(events.classes), dtype=np.bool_)
    numbers = np.asarray(events.array(named.PLACE))
    offsets = np.asarray(events.array(named.OFFSET))
    for number in np.unique(numbers).tolist():
        mine = numbers == number
        is_erased[mine] = tombstones.has_positions(places.place(number), offsets[mine])
    if tombstones.has_ids:
        has_id = np.asarray(events.array(named.EVENT_ID).is_valid())
        rows = np.flatnonzero(has_id)
        events.fingerprints = np.zeros((len(has_id), 2), dtype=np.uint64)
        if rows.size:
            found = fingerprint(_id_parts(events, rows), key)
            events.fingerprints[rows] = found
            is_erased[rows[tombstones.find_ids(found)]] = True
    events.erased = np.flatnonzero(is_erased)
    events.classes[events.erased] = EventClass.FILTERED
    for row in events.erased.tolist():
        events.reasons.pop(row, None)


def fingerprints_of(events: ClassifiedEvents, rows: I64Array, key: bytes) -> U64Array:
    """Return the fingerprints of some events' IDs; each must have one."""
    if events.fingerprints is not None:
        # Hashing costs more than all that is done with the hashes.
        return events.fingerprints[rows]
    return fingerprint(_id_parts(events, rows), key)


def _id_parts(events: ClassifiedEvents, rows: I64Array) -> list[pa.Array]:
    def column(name: str) -> pa.Array:
        found = events.array(name)
        return found if len(rows) == len(found) else found.take(pa.array(rows))

    parts = [column(named.EVENT_ID)]
    if named.ID_SOURCE in events.table.column_names:
        parts.insert(0, pc.fill_null(column(named.ID_SOURCE), ""))
    return parts


def buckets_of(event_time_us: I64Array, bucket_seconds: int) -> I64Array:
    """Return the bucket of seen IDs that each time is filed under: where it begins."""
    seconds = np.floor_divide(event_time_us, 1_000_000)
    return np.floor_divide(seconds, bucket_seconds) * bucket_seconds
