"""Which records only replayed batches have read."""

from __future__ import annotations

import random

from tallyweir.sinks.postgres.audit.replay.replay_rows import merged, without
from tallyweir.sinks.protocol.offsets import OffsetRange, TopicPartition

_OFFSETS = 30


def _random_ranges(source: random.Random) -> list[OffsetRange]:
    found = []
    for _ in range(source.randrange(6)):
        begin, end = sorted(source.choices(range(_OFFSETS), k=2))
        found.append(
            OffsetRange(
                topic_partition=TopicPartition("t", source.randrange(2)),
                from_offset=begin,
                until_offset=end,
            )
        )
    return found


def _offsets(ranges: list[OffsetRange]) -> list[tuple[int, int]]:
    return [
        (one.topic_partition.partition, offset)
        for one in ranges
        for offset in range(one.from_offset, one.until_offset)
    ]


def test_ranges_are_joined_and_cut_by_offset() -> None:
    """Each offset is in one of them, and in none of the others."""
    for seed in range(500):
        source = random.Random(seed)
        ranges, others = _random_ranges(source), _random_ranges(source)
        wanted = set(_offsets(ranges))
        assert sorted(wanted) == _offsets(merged(ranges)), seed
        left = wanted - set(_offsets(others))
        assert sorted(left) == sorted(_offsets(list(without(ranges, others)))), seed
