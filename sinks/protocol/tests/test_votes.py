"""Votes, their sum, and the conservation law."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallyweir.sinks.protocol.errors import FatalError
from tallyweir.sinks.protocol.identity import Attempt
from tallyweir.sinks.protocol.offsets import OffsetRange, TopicPartition
from tallyweir.sinks.protocol.votes import (
    BatchTally,
    EventCounts,
    OutputTally,
    PartitionTally,
    Vote,
    tally_votes,
)

_P0 = TopicPartition("events", 0)
_P1 = TopicPartition("events", 1)
_RANGES = [
    OffsetRange(topic_partition=_P0, from_offset=10, until_offset=20),
    OffsetRange(topic_partition=_P1, from_offset=0, until_offset=5),
]


def _seen(
    counts: EventCounts, first: int, last: int, time_us: int | None = None
) -> PartitionTally:
    return PartitionTally(
        counts=counts, offset_min=first, offset_max=last, event_time_max_us=time_us
    )


def _vote(attempt: int, seen: dict[TopicPartition, PartitionTally]) -> Vote:
    return Vote(
        attempt=Attempt(attempt),
        partitions=seen,
        staged={"results": attempt},
        outputs={"results": OutputTally(events=attempt, rows=1, late=2, revised=3)},
        checksum=attempt * 100,
        buckets={attempt: 2, 7: 1},
    )


_FIRST = _vote(
    1,
    {
        _P0: _seen(EventCounts(read=3, committed=2, dead=1), 10, 14, 7),
        _P1: _seen(EventCounts(read=1, filtered=1), 4, 4),
    },
)
_SECOND = _vote(2, {_P0: _seen(EventCounts(read=2, duplicate=1, late=1), 11, 19, 5)})


def _tally(*votes: Vote, records_read: int) -> BatchTally:
    return tally_votes(votes, _RANGES, records_read=records_read)


def _refused(*votes: Vote, records_read: int) -> str:
    with pytest.raises(FatalError) as raised:
        _tally(*votes, records_read=records_read)
    assert "CONSERVATION_BROKEN" == raised.value.code
    return raised.value.saw


def test_votes_add_up_per_partition_table_and_output() -> None:
    """A batch's tally is the sum of what its tasks saw and staged."""
    tally = _tally(_SECOND, _FIRST, records_read=6)
    assert {
        _P0: _seen(
            EventCounts(read=5, committed=2, duplicate=1, dead=1, late=1), 10, 19, 7
        ),
        _P1: _seen(EventCounts(read=1, filtered=1), 4, 4),
    } == tally.partitions
    assert {"results": 3} == tally.staged
    assert {"results": OutputTally(events=3, rows=2, late=4, revised=6)} == (
        tally.outputs
    )
    assert (Attempt(1), Attempt(2)) == tally.attempts
    assert (300, {1: 2, 2: 2, 7: 2}) == (tally.checksum, tally.buckets)
    assert 6 == tally.counts.read


def test_a_batch_without_votes_is_empty() -> None:
    """A batch of no records needs no task."""
    tally = _tally(records_read=0)
    assert (EventCounts(), ()) == (tally.counts, tally.attempts)


def test_every_record_read_must_be_accounted_for() -> None:
    """A record that was lost inside a task breaks the law."""
    counts = EventCounts(read=4, committed=2, dead=1)
    saw = _refused(_vote(1, {_P0: _seen(counts, 10, 14)}), records_read=4)
    assert "events[0]: 4 read, 3 accounted." == saw


@pytest.mark.parametrize(
    "kind", ["committed", "duplicate", "dead", "late", "expired", "filtered"]
)
def test_each_class_of_events_counts_in_the_law(kind: str) -> None:
    """One event of any class accounts for one record read."""
    counts = replace(EventCounts(read=1), **{kind: 1})
    assert 1 == counts.accounted
    assert (
        1 == _tally(_vote(1, {_P0: _seen(counts, 10, 10)}), records_read=1).counts.read
    )


def test_a_record_lost_before_the_tasks_is_noticed() -> None:
    """The source counts for itself, so that the shuffle cannot lose a record."""
    assert "the source delivered 7 records, the tasks saw 6." == _refused(
        _FIRST, _SECOND, records_read=7
    )


def test_a_record_doubled_before_the_tasks_is_noticed() -> None:
    """Nor can the shuffle double one."""
    assert "the source delivered 5 records, the tasks saw 6." == _refused(
        _FIRST, _SECOND, records_read=5
    )


def test_a_missing_vote_is_noticed() -> None:
    """A task whose vote did not arrive cannot be overlooked."""
    _refused(_FIRST, records_read=6)


def test_an_attempt_votes_once() -> None:
    """Two votes of one attempt would publish its rows once but count them twice."""
    assert "attempts (1, 1) voted more than once." == _refused(
        _FIRST, _FIRST, records_read=8
    )


@pytest.mark.parametrize(("first", "last"), [(9, 12), (12, 20)])
def test_offsets_outside_the_plan_are_refused(first: int, last: int) -> None:
    """The range is half-open: its end belongs to the next batch."""
    counts = EventCounts(read=2, committed=2)
    saw = _refused(_vote(1, {_P0: _seen(counts, first, last)}), records_read=2)
    assert f"offsets {first} to {last} outside of events[0] 10..20." == saw


def test_the_first_and_the_last_offset_of_a_range_belong_to_it() -> None:
    """Both ends of what a batch holds are accepted."""
    counts = EventCounts(read=2, committed=2)
    assert (
        2
        == _tally(
            _vote(1, {_P0: _seen(counts, 10, 19)}), records_read=2
        ).counts.committed
    )


def test_an_unplanned_partition_is_refused() -> None:
    """A partition that is not in the plan was not to be read."""
    other = TopicPartition("events", 9)
    counts = EventCounts(read=1, committed=1)
    assert "events[9] was read but not planned." == _refused(
        _vote(1, {other: _seen(counts, 0, 0)}), records_read=1
    )


def test_a_range_cannot_hold_more_records_than_offsets() -> None:
    """A record read twice is noticed although each copy is accounted for."""
    counts = EventCounts(read=11, committed=11)
    assert "11 records read in events[0] 10..20." == _refused(
        _vote(1, {_P0: _seen(counts, 10, 19)}), records_read=11
    )


_tallies = st.builds(
    PartitionTally,
    counts=st.builds(EventCounts, read=st.integers(0, 9), late=st.integers(0, 9)),
    offset_min=st.integers(0, 99),
    offset_max=st.integers(0, 99),
    event_time_max_us=st.none() | st.integers(-9, 9),
)


@given(a=_tallies, b=_tallies, c=_tallies)
def test_the_order_of_votes_does_not_matter(
    a: PartitionTally, b: PartitionTally, c: PartitionTally
) -> None:
    """Adding tallies is commutative and associative: tasks end in any order."""
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
