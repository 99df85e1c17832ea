"""Where a pipeline is to go on is read as people write it, or refused."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tallyweir.services.operate.steering.position_acts import move_told, parse_target
from tallyweir.sinks.postgres.steering import MovedPosition
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.offsets import TopicPartition


def test_a_target_is_a_moment_or_offsets() -> None:
    """Each as the help of the command shows it; a topic's name may have colons."""
    assert parse_target("2026-05-03T04:00Z", ()).moment == datetime(
        2026, 5, 3, 4, tzinfo=UTC
    )
    offsets = parse_target(None, ("flights:0=1200", "a:b:1=7")).offsets
    assert offsets == {
        TopicPartition("flights", 0): 1200,
        TopicPartition("a:b", 1): 7,
    }


@pytest.mark.parametrize(
    ("to_time", "to_offsets"),
    [
        (None, ()),
        ("2026-05-03T04:00Z", ("flights:0=1",)),
        ("2026-05-03T04:00", ()),
        ("yesterday", ()),
        (None, ("flights=1",)),
        (None, (":0=1",)),
        (None, ("flights:0=-1",)),
    ],
)
def test_what_is_no_target_is_refused(
    to_time: str | None, to_offsets: tuple[str, ...]
) -> None:
    """None, both, a time without its zone, a place that is none."""
    with pytest.raises(ConfigurationError) as refused:
        parse_target(to_time, to_offsets)
    assert refused.value.code == "RESET_TARGET"


def test_what_is_read_again_is_told_with_what_is_there_already() -> None:
    """Rows that stay, and what gets another chance, under the partition's line."""
    move = MovedPosition(
        topic="flights",
        partition=0,
        stood_at=1200,
        target=200,
        batches=2,
        cut=1,
        read=1100,
        committed=1000,
        put_aside={"dead_letter": 3, "duplicate_event": 4},
        rows={"departures": 900},
    )
    settled = (
        "  they belong to 2 batches, 1 of them only in part, which read 1,100 records "
        "and committed 1,000"
    )
    assert move_told(move) == (
        "flights[0] 1,200 -> 200: up to 1,000 records are read again",
        settled,
        "  900 are rows of departures: they stay, and count as duplicates",
        "  3 are dead letters: they get another chance",
        "  4 are duplicates: they stay so",
    )
