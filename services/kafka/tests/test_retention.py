"""How long Kafka keeps what is unread is never overstated."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest

from tallyweir.services.kafka.retention import (
    Retention,
    UnreadPart,
    headroom_s,
    retention_of,
)
from tallyweir.sinks.protocol.recovery import BrokerPosition

_NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
_DAY = timedelta(days=1)


def _part(
    *, next_offset: int, start: int = 0, end: int = 100, unread: bool = True
) -> UnreadPart:
    position = BrokerPosition(topic_id="t", log_start_offset=start, log_end_offset=end)
    return UnreadPart(
        next_offset=next_offset,
        position=position,
        unread_at=_NOW - timedelta(hours=3) if unread else None,
        log_start_at=_NOW - timedelta(hours=5),
    )


@pytest.mark.parametrize(
    ("part", "retention", "expected"),
    [
        # The record's own time: three hours of a day are over.
        (_part(next_offset=50), Retention(age=_DAY, has_size=False), 21 * 3600),
        (_part(next_offset=50), Retention(age=None, has_size=False), math.inf),
        (_part(next_offset=100), Retention(age=_DAY, has_size=True), math.inf),
        # Nothing but markers of transactions is left.
        (
            _part(next_offset=50, unread=False),
            Retention(age=_DAY, has_size=False),
            math.inf,
        ),
        # Kafka has deleted some of it already.
        (_part(next_offset=9, start=10), Retention(age=_DAY, has_size=False), 0.0),
        (_part(next_offset=10, start=10), Retention(age=_DAY, has_size=False), 75_600),
        # It should be gone; its segment is not closed yet.
        (
            _part(next_offset=50),
            Retention(age=timedelta(hours=2), has_size=False),
            0.0,
        ),
        # Limited in bytes: the log holds five hours, and three of them are over.
        (_part(next_offset=50, start=10), Retention(age=_DAY, has_size=True), 7_200),
        (_part(next_offset=50, start=0), Retention(age=_DAY, has_size=True), 75_600),
    ],
)
def test_the_headroom_is_that_of_the_first_unread_record(
    part: UnreadPart, retention: Retention, expected: float
) -> None:
    """By time, by size where the log was cut, and none where it is gone."""
    assert expected == headroom_s(part, retention, _NOW)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, Retention(age=None, has_size=False)),
        (
            {"retention.ms": "1000", "retention.bytes": "-1"},
            Retention(age=timedelta(seconds=1), has_size=False),
        ),
        (
            {"retention.ms": "-1", "retention.bytes": "5"},
            Retention(age=None, has_size=True),
        ),
        (
            {"cleanup.policy": "compact", "retention.ms": "1000"},
            Retention(age=None, has_size=False),
        ),
        (
            {"cleanup.policy": "compact,delete", "retention.ms": "1000"},
            Retention(age=timedelta(seconds=1), has_size=False),
        ),
    ],
)
def test_a_topics_settings_say_how_long_records_live(
    settings: dict[str, str], expected: Retention
) -> None:
    """A compacted topic keeps the newest of each key for good."""
    assert expected == retention_of(settings)
