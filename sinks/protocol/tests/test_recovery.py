"""Where a starting driver resumes, and when it must not."""

from __future__ import annotations

import pytest

from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.recovery import (
    BrokerPosition,
    StoredPosition,
    decide_start,
)

_P0 = TopicPartition("events", 0)
_P1 = TopicPartition("events", 1)
_OTHER = TopicPartition("other", 0)


def _stored(next_offset: int, topic_id: str = "id") -> StoredPosition:
    return StoredPosition(topic_id=topic_id, next_offset=next_offset)


def _broker(start: int, end: int, topic_id: str = "id") -> BrokerPosition:
    return BrokerPosition(topic_id=topic_id, log_start_offset=start, log_end_offset=end)


def test_a_new_pipeline_begins_at_the_start_of_the_log() -> None:
    """What retention deleted before the pipeline existed is not missing."""
    assert {_P0: 7, _P1: 0} == decide_start(
        {}, {_P0: _broker(7, 9), _P1: _broker(0, 0)}
    )


def test_a_known_partition_resumes_where_postgres_stands() -> None:
    """The broker's own idea of a position plays no part."""
    assert {_P0: 5} == decide_start({_P0: _stored(5)}, {_P0: _broker(0, 9)})


def test_an_added_partition_begins_at_zero() -> None:
    """All events of a partition that was added later are unread."""
    assert {_P0: 5, _P1: 0} == decide_start(
        {_P0: _stored(5)}, {_P0: _broker(0, 9), _P1: _broker(0, 4)}
    )


def test_a_topic_that_is_added_begins_at_the_start_of_its_log() -> None:
    """What retention deleted before the pipeline read the topic is not missing."""
    broker = {_P0: _broker(0, 9), _OTHER: _broker(7, 9, "id-2")}
    assert {_P0: 5, _OTHER: 7} == decide_start({_P0: _stored(5)}, broker)


def test_a_topic_that_is_left_out_keeps_its_position() -> None:
    """It is no partition that is gone; read again, it goes on where it stood."""
    stored = {_P0: _stored(5), _OTHER: _stored(3, "id-2")}
    assert {_P0: 5} == decide_start(stored, {_P0: _broker(0, 9)})
    broker = {_P0: _broker(0, 9), _OTHER: _broker(0, 9, "id-2")}
    assert {_P0: 5, _OTHER: 3} == decide_start(stored, broker)


@pytest.mark.parametrize(("start", "end"), [(5, 9), (0, 5), (5, 5)])
def test_both_ends_of_the_log_can_be_reached(start: int, end: int) -> None:
    """Standing exactly at the start or the end of the log loses nothing."""
    assert {_P0: 5} == decide_start({_P0: _stored(5)}, {_P0: _broker(start, end)})


@pytest.mark.parametrize(
    ("code", "stored", "broker", "told"),
    [
        ("TOPIC_RECREATED", {_P0: _stored(5)}, {_P0: _broker(0, 9, "new")}, "new"),
        ("PARTITION_MISSING", {_P0: _stored(5)}, {_P1: _broker(0, 9)}, "events[0]"),
        ("RETENTION_GAP", {_P0: _stored(5)}, {_P0: _broker(6, 9)}, "starts at 6"),
        (
            "RETENTION_GAP",
            {_P0: _stored(5)},
            {_P0: _broker(0, 9), _P1: _broker(1, 4)},
            "events[1]",
        ),
        ("OFFSET_PAST_END", {_P0: _stored(5)}, {_P0: _broker(0, 4)}, "ends at 4"),
    ],
)
def test_lost_events_stop_the_start(
    code: str,
    stored: dict[TopicPartition, StoredPosition],
    broker: dict[TopicPartition, BrokerPosition],
    told: str,
) -> None:
    """Whatever was lost outside of the pipeline is told, not skipped."""
    with pytest.raises(ConfigurationError) as raised:
        decide_start(stored, broker)
    assert code == raised.value.code
    assert told in raised.value.saw


def test_a_recreated_topic_is_told_before_its_offsets_are_judged() -> None:
    """The offsets of another topic mean nothing, and so no gap may be reported."""
    with pytest.raises(ConfigurationError) as raised:
        decide_start({_P0: _stored(5)}, {_P0: _broker(8, 9, "new")})
    assert "TOPIC_RECREATED" == raised.value.code
