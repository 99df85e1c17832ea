"""Which events were erased, and what their IDs are hashed to."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tallyweir.sinks.seen_ids.event_hashes import fingerprint
from tallyweir.sinks.seen_ids.id_hash import fingerprint_of
from tallyweir.sinks.seen_ids.tombstones import Tombstones
from tallyweir.spark_jobs.source import event_columns as named
from tallyweir.spark_jobs.source.source_places import SourcePlaces
from tallyweir.spark_jobs.task.classified_events import ClassifiedEvents
from tallyweir.spark_jobs.task.event_ids import find_erased, fingerprints_of

_KEY = b"0123456789abcdef"
_PLACES = SourcePlaces(("t",))


def _events(ids: list[str | None], *, sources: list[str] | None) -> ClassifiedEvents:
    rows = len(ids)
    columns = {
        named.PLACE: pa.array([n % 2 for n in range(rows)], pa.int64()),
        named.OFFSET: pa.array(range(rows), pa.int64()),
        named.EVENT_ID: pa.array(ids, pa.string()),
    }
    if sources is not None:
        columns[named.ID_SOURCE] = pa.array(sources, pa.string())
    return ClassifiedEvents(
        table=pa.table(columns),
        classes=np.zeros(rows, dtype=np.uint8),
        event_time_us=np.zeros(rows, dtype=np.int64),
    )


def _erased(events: ClassifiedEvents, tombstones: Tombstones) -> list[int]:
    found = find_erased(events, tombstones, _KEY, _PLACES)
    return [int(row) for row in np.flatnonzero(found)]


def test_events_are_found_by_id_and_by_position() -> None:
    """By ID where there is one; by position also where none could be read."""
    events = _events(["a", "b", None, "d", None], sources=None)
    tombstones = Tombstones(fingerprint_of(["b"], _KEY), [("t", 0, 2), ("t", 1, 4)])
    assert _erased(events, tombstones) == [1, 2]


def test_an_id_of_another_source_is_another() -> None:
    """As it is for whoever looks for repeats."""
    events = _events(["a", "a"], sources=["/shop/1", "/shop/2"])
    erased = Tombstones(fingerprint_of(["/shop/2", "a"], _KEY), [])
    assert _erased(events, erased) == [1]


@pytest.mark.parametrize("is_marked", [False, True])
def test_fingerprints_are_the_same_whether_they_were_known_or_not(
    *, is_marked: bool
) -> None:
    """Rows are hashed once, and each claims its own ID."""
    events = _events(["a", None, "c"], sources=None)
    if is_marked:
        assert not _erased(events, Tombstones(fingerprint_of(["x"], _KEY), []))
    found = fingerprints_of(events, np.array([0, 2]), _KEY)
    assert (found == fingerprint([pa.array(["a", "c"])], _KEY)).all()
