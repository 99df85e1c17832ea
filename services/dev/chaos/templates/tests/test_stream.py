"""A trial's stream gives the same rows however its reader cuts it into batches."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise

import pytest

from tallyweir.schemas.codec import decode
from tallyweir.schemas.contract import load_contract
from tallyweir.services.dev.chaos.templates.stream import PARTITIONS, TemplateStream
from tallyweir.services.local.datasets.made_up import DATASETS
from tallyweir.services.produce.faults import (
    REPEATS,
    Message,
    MessageKind,
    default_partition,
)

_NOW = dt.datetime(2026, 5, 1, 12, tzinfo=dt.UTC)
_EVENTS = 3_000
_TIMES = {
    "page_views": ("event_id", "viewed_at"),
    "user_actions": ("event_id", "acted_at"),
    "sensor_readings": ("event_id", "measured_at"),
    "machine_readings": ("event_id", "read_at"),
    "orders": ("order_id", "ordered_at"),
}
#: The shortest delay of a template whose events are out of order.
_DELAY = dt.timedelta(seconds=10)


def _stream(dataset: str) -> TemplateStream:
    return TemplateStream(
        contract=load_contract(DATASETS[dataset].contract),
        event_id=_TIMES[dataset][0],
        dataset=dataset,
        events=_EVENTS,
        seed=7,
        now=_NOW,
    )


def _times(dataset: str, messages: Iterable[Message]) -> dict[int, list[dt.datetime]]:
    """Event times of each partition's good events, in order."""
    contract = load_contract(DATASETS[dataset].contract)
    found: defaultdict[int, list[dt.datetime]] = defaultdict(list)
    for message in messages:
        if message.kind is MessageKind.EVENT:
            record = decode(message.payload, {contract.schema_id: contract})
            time = record[_TIMES[dataset][1]]
            assert isinstance(time, dt.datetime)
            found[default_partition(message.key, PARTITIONS)].append(time)
    return found


@pytest.mark.parametrize("dataset", _TIMES)
def test_no_event_is_late_however_the_topic_is_read(dataset: str) -> None:
    """None is further behind its own partition's newest than the shortest delay."""
    stream = _stream(dataset)
    body = _times(dataset, stream.body())
    assert set(body) == set(range(PARTITIONS))
    assert sum(map(len, body.values())) == _EVENTS
    for times in body.values():
        newest = times[0]
        for time in times:
            assert newest - time < _DELAY
            newest = max(newest, time)


@pytest.mark.parametrize("dataset", _TIMES)
def test_the_end_is_later_than_any_window_in_every_partition(dataset: str) -> None:
    """And not later than now, which the pipeline would not believe."""
    stream = _stream(dataset)
    body, end = _times(dataset, stream.body()), _times(dataset, stream.end())
    newest = max(max(times) for times in body.values())
    assert set(end) == set(range(PARTITIONS))
    for times in end.values():
        assert min(times) > newest + dt.timedelta(minutes=20)
        assert max(times) <= _NOW


def test_a_machines_readings_and_their_repeats_stay_in_order() -> None:
    """In one partition, with silences between them."""
    messages = list(_stream("machine_readings").body())
    assert all(message.partition is None for message in messages)
    assert any(message.kind in REPEATS for message in messages)
    silence = dt.timedelta(minutes=1)
    for times in _times("machine_readings", messages).values():
        assert times == sorted(times)
        gaps = [after - before for before, after in pairwise(times)]
        assert sum(gap > silence for gap in gaps) >= 4


def test_the_same_seed_gives_the_same_messages() -> None:
    """IDs and faults included, at the same time."""
    one, other = _stream("page_views"), _stream("page_views")
    assert list(one.body()) == list(other.body())
    assert list(one.end()) == list(other.end())
