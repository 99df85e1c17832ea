"""Hashes IDs: to find erased events, and for the questions by which tasks claim IDs.

``verdicts`` asks these questions.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tallyweir.sinks.seen_ids.claim import Candidates
from tallyweir.sinks.seen_ids.event_hashes import fingerprint, payload_hashes
from tallyweir.sinks.seen_ids.ordering import BoolArray, I64Array, U64Array
from tallyweir.sinks.seen_ids.tombstones import Tombstones
from tallyweir.spark_jobs.source import event_columns as named
from tallyweir.spark_jobs.source.source_places import SourcePlaces
from tallyweir.spark_jobs.task.classified_events import ClassifiedEvents, EventClass


def position_ids(rows: pa.Table, places: SourcePlaces) -> pa.Array:
    """Return the IDs of records without one: their positions, as ``orders[3]@1042``.

    Args:
        rows: The records, with ``PLACE`` and ``OFFSET`` in one chunk each.
        places: The topics and partitions behind the place numbers.
    """
    numbers = np.asarray(rows.column(named.PLACE).chunk(0))
    known, which = np.unique(numbers, return_inverse=True)
    names = pa.array([f"{places.place(one)}@" for one in known.tolist()], pa.string())
    offsets = rows.column(named.OFFSET).chunk(0).cast(pa.string())
    return pc.binary_join_element_wise(names.take(pa.array(which)), offsets, "")


def find_erased(
    events: ClassifiedEvents, tombstones: Tombstones, key: bytes, places: SourcePlaces
) -> BoolArray:
    """Tell which events were erased, by ID or by position.

    If it computes fingerprints, it keeps them in ``events``.

    Args:
        events: The events of a task.
        tombstones: The erased IDs and positions.
        key: The installation's secret for fingerprints.
        places: The topics and partitions behind the frame's place numbers.
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
    return is_erased


def candidates_of(
    events: ClassifiedEvents,
    rows: I64Array,
    key: bytes,
    *,
    bucket_seconds: int,
    keeps_payload_hashes: bool,
) -> Candidates:
    """Return the candidates by which rows ask for their IDs, in the order of the rows.

    Args:
        events: The events of a task.
        rows: The rows that ask; each has an ID. Filtered ones can only correct.
        key: The installation's secret for fingerprints.
        bucket_seconds: Seconds of event time in one bucket of seen IDs.
        keeps_payload_hashes: Whether payloads are compared.
    """
    fingerprints = fingerprints_of(events, rows, key)
    is_filtered = events.classes[rows] == EventClass.FILTERED
    return Candidates(
        place=np.asarray(_column(events, rows, named.PLACE)).astype(np.int64),
        offset=np.asarray(_column(events, rows, named.OFFSET)),
        bucket=buckets_of(events.event_time_us[rows], bucket_seconds),
        hi=np.ascontiguousarray(fingerprints[:, 0]),
        lo=np.ascontiguousarray(fingerprints[:, 1]),
        payload_hashes=payload_hashes(_taken(payloads_of(events), rows), key)
        if keeps_payload_hashes
        else None,
        # A filtered event with a new ID has nothing to correct.
        only_corrects=is_filtered if is_filtered.any() else None,
    )


def fingerprints_of(events: ClassifiedEvents, rows: I64Array, key: bytes) -> U64Array:
    """Return the fingerprints of some events' IDs; each event must have an ID."""
    if events.fingerprints is not None:
        # Hashing costs more than all other work with the hashes.
        return events.fingerprints[rows]
    return fingerprint(_id_parts(events, rows), key)


def buckets_of(event_time_us: I64Array, bucket_seconds: int) -> I64Array:
    """Return the start of the bucket of seen IDs that each time is filed under."""
    seconds = np.floor_divide(event_time_us, 1_000_000)
    return np.floor_divide(seconds, bucket_seconds) * bucket_seconds


def payloads_of(events: ClassifiedEvents) -> pa.Array:
    """Return what two copies of an event share byte for byte; events have no nulls."""
    payloads = events.array(named.VALUE)
    if named.CANONICAL not in events.table.column_names:
        return payloads
    canonical = events.array(named.CANONICAL)
    return pc.coalesce(canonical, payloads) if canonical.null_count else canonical


def _id_parts(events: ClassifiedEvents, rows: I64Array) -> list[pa.Array]:
    parts = [_column(events, rows, named.EVENT_ID)]
    if named.ID_SOURCE in events.table.column_names:
        parts.insert(0, pc.fill_null(_column(events, rows, named.ID_SOURCE), ""))
    return parts


def _column(events: ClassifiedEvents, rows: I64Array, name: str) -> pa.Array:
    return _taken(events.array(name), rows)


def _taken(column: pa.Array, rows: I64Array) -> pa.Array:
    return column if len(rows) == len(column) else column.take(pa.array(rows))
