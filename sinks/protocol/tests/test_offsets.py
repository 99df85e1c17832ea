"""Comparing a batch's ranges with the stored offsets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallyweir.sinks.protocol.errors import FatalError
from tallyweir.sinks.protocol.offsets import (
    OffsetRange,
    OffsetsVerdict,
    TopicPartition,
    compare_offsets,
)

_P = [TopicPartition("events", number) for number in range(3)]


def _range(partition: int, from_offset: int, until_offset: int) -> OffsetRange:
    return OffsetRange(
        topic_partition=_P[partition],
        from_offset=from_offset,
        until_offset=until_offset,
    )


@st.composite
def _ranges(draw: st.DrawFn) -> list[OffsetRange]:
    partitions = draw(st.sets(st.integers(0, 2), min_size=1))
    starts = [draw(st.integers(0, 5)) for _ in partitions]
    return [
        _range(number, start, start + draw(st.integers(0, 5)))
        for number, start in zip(sorted(partitions), starts, strict=True)
    ]


_stored = st.dictionaries(st.sampled_from(_P), st.integers(0, 12))


@given(ranges=_ranges())
def test_a_batch_that_starts_where_postgres_stands_is_next(
    ranges: list[OffsetRange],
) -> None:
    """Equal starts make a batch the next one, whatever it holds."""
    stored = {r.topic_partition: r.from_offset for r in ranges}
    assert OffsetsVerdict.NEXT is compare_offsets(stored, ranges)


@given(ranges=_ranges(), ahead=st.integers(0, 3))
def test_a_batch_that_postgres_has_passed_is_committed_unless_it_is_empty(
    ranges: list[OffsetRange], ahead: int
) -> None:
    """A batch with records counts as committed once every range is past."""
    stored = {r.topic_partition: r.until_offset + ahead for r in ranges}
    moved = any(stored[r.topic_partition] != r.from_offset for r in ranges)
    expected = OffsetsVerdict.ALREADY_COMMITTED if moved else OffsetsVerdict.NEXT
    assert expected is compare_offsets(stored, ranges)


@given(stored=_stored, ranges=_ranges())
def test_publishing_what_is_next_never_loses_or_doubles_an_offset(
    stored: dict[TopicPartition, int], ranges: list[OffsetRange]
) -> None:
    """A verdict is given only where it loses and doubles nothing."""
    wrong = [r for r in ranges if stored.get(r.topic_partition, 0) != r.from_offset]
    short = [
        r
        for r in ranges
        if r.length and stored.get(r.topic_partition, 0) < r.until_offset
    ]
    if wrong and short:
        with pytest.raises(FatalError):
            compare_offsets(stored, ranges)
        return
    verdict = compare_offsets(stored, ranges)
    for r in ranges:
        published = set(range(stored.get(r.topic_partition, 0)))
        covered = set(range(r.from_offset, r.until_offset))
        if verdict is OffsetsVerdict.NEXT:
            assert not published & covered
            assert set(range(r.until_offset)) == published | covered
        else:
            assert covered <= published


@pytest.mark.parametrize(
    ("stored", "ranges"),
    [
        ({_P[0]: 3}, [_range(0, 4, 5)]),
        ({_P[0]: 3}, [_range(0, 2, 5)]),
        ({_P[0]: 3, _P[1]: 0}, [_range(0, 0, 3), _range(1, 0, 3)]),
        ({_P[0]: 3, _P[1]: 1}, [_range(0, 3, 5), _range(1, 0, 1)]),
        ({}, [_range(0, 1, 2)]),
    ],
    ids=["gap", "overlap", "one past, one next", "one next, one past", "unknown"],
)
def test_anything_else_is_refused(
    stored: dict[TopicPartition, int], ranges: list[OffsetRange]
) -> None:
    """A batch that is neither next nor past names the ranges that disagree."""
    with pytest.raises(FatalError, match="Postgres stands at") as raised:
        compare_offsets(stored, ranges)
    assert "OFFSETS_DISAGREE" == raised.value.code


def test_a_partition_that_postgres_does_not_know_starts_at_zero() -> None:
    """Spark reads new partitions from their beginning as well."""
    assert OffsetsVerdict.NEXT is compare_offsets({}, [_range(0, 0, 2)])


@pytest.mark.parametrize(("first", "until"), [(-1, 0), (3, 2)])
def test_an_impossible_range_cannot_be_made(first: int, until: int) -> None:
    """Ranges neither start below 0 nor run backwards."""
    with pytest.raises(AssertionError):
        _range(0, first, until)


def test_a_range_is_half_open() -> None:
    """The offset at the end belongs to the next batch."""
    assert (0, 3) == (_range(0, 5, 5).length, _range(0, 2, 5).length)
    assert "events[0] 2..5" == str(_range(0, 2, 5))
