"""How far a group is off."""

from __future__ import annotations

from tallyweir.services.relay.offset_mirror import drift
from tallyweir.sinks.protocol.offsets import TopicPartition

_A, _B = TopicPartition("orders", 0), TopicPartition("orders", 1)


def test_drift_counts_both_ways_and_what_is_not_shown_from_0() -> None:
    """A group that is ahead is as wrong as one that is behind."""
    assert 0 == drift({_A: 5, _B: 7}, {_A: 5, _B: 7})
    assert 5 == drift({_A: 3, _B: 10}, {_A: 5, _B: 7})
    assert 7 == drift({_A: 5}, {_A: 5, _B: 7})
