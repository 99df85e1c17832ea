"""Records at a pace: never faster, and stopped in time."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import pytest

from tallyweir.schemas.codec import EventRecord
from tallyweir.services.produce.emit import PacedRecords


def _numbers() -> Iterator[EventRecord]:
    return ({"number": number} for number in itertools.count())


def test_records_come_no_faster_than_the_rate() -> None:
    """The first at once, the twenty-first a twentieth of a second later at 400/s."""
    began = time.monotonic()
    paced = PacedRecords(_numbers(), rate=400, events=21, seconds=None)
    assert len(list(paced)) == 21
    assert time.monotonic() - began >= 20 / 400


@pytest.mark.parametrize("events", [0, 1, 7])
def test_no_more_than_the_wanted_events_come(events: int) -> None:
    """Even of endless ones."""
    paced = PacedRecords(_numbers(), rate=None, events=events, seconds=None)
    assert [record["number"] for record in paced] == list(range(events))


def test_an_endless_stream_ends_after_the_wanted_seconds() -> None:
    """With as many records as the rate gives in that time: at 0, 0.2 and 0.4 s.

    A busy machine may come a tenth of a second late for the last.
    """
    paced = PacedRecords(_numbers(), rate=5, events=None, seconds=0.5)
    assert len(list(paced)) == 3


def test_a_stopped_stream_ends() -> None:
    """Also while it waits for its next record."""
    paced = PacedRecords(_numbers(), rate=0.001, events=None, seconds=None)
    stream = iter(paced)
    assert next(stream) == {"number": 0}
    paced.stop()
    assert list(stream) == []
