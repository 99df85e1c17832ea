"""A snapshot that shows a part of a batch is noticed, by the ledger or by Kafka."""

from __future__ import annotations

from dataclasses import replace

from tallyweir.services.dev.chaos.snapshots import (
    Snapshot,
    Span,
    floors_below,
    judge_against_sent,
    judge_snapshot,
)

SENT = {(0, 0): None, (0, 2): None, (0, 3): None, (0, 7): None, (1, 1): None}

SPAN = Span(
    partition=0,
    floor=2,
    until=5,
    found=(1, 1, 0),
    ledger=(1, 1, 0),
    offset_sum=5,
    beyond=0,
)
SNAPSHOT = Snapshot(spans=(SPAN,), window_events=4, committed=4)


def with_span(**changes: object) -> Snapshot:
    """The good snapshot with another span."""
    return replace(SNAPSHOT, spans=(replace(SPAN, **changes),))  # type: ignore[arg-type]


def test_a_whole_snapshot_is_whole() -> None:
    """Neither the ledger nor Kafka contradicts it."""
    assert judge_snapshot(SNAPSHOT) == []
    assert judge_against_sent([SNAPSHOT], SENT) == []


def test_rows_without_their_ledger_row_are_noticed() -> None:
    """Results and ledger move together."""
    assert judge_snapshot(with_span(found=(2, 1, 0)))
    assert judge_snapshot(with_span(ledger=(1, 1, 1)))


def test_a_floor_sinks_with_what_is_visible() -> None:
    """A crash of the home server takes notes away, and nothing that was committed."""
    assert floors_below({0: 245, 1: 7, 2: 3}, {0: 244, 1: 9}) == {0: 244, 1: 7}
    assert floors_below({}, {0: 5}) == {0: 0}


def test_rows_beyond_the_next_offset_are_noticed() -> None:
    """Results and offsets move together."""
    assert judge_snapshot(with_span(beyond=1))


def test_windows_without_their_events_are_noticed() -> None:
    """Windows and ledger move together."""
    assert judge_snapshot(replace(SNAPSHOT, window_events=3))


def test_a_record_that_kafka_had_and_the_snapshot_lacks_is_noticed() -> None:
    """The ledger may agree with the tables and both be wrong."""
    assert judge_against_sent([with_span(found=(1, 0, 0), ledger=(1, 0, 0))], SENT)
    assert judge_against_sent([with_span(until=8)], SENT)


def test_another_record_in_place_of_one_is_noticed() -> None:
    """Equal counts of other offsets are not equal."""
    assert judge_against_sent([with_span(offset_sum=6)], SENT)
