"""The hottest keys of several tasks together."""

from __future__ import annotations

from tallyweir.sinks.protocol.measures import (
    KEYS_KEPT,
    HotKeys,
    hot_keys_json,
    hottest,
    parse_hot_keys,
)


def test_keys_of_tasks_add_up() -> None:
    """The order is by events, and survives the ledger."""
    one = HotKeys(events=10, keys={"a": 5, "b": 4})
    other = HotKeys(events=20, keys={"b": 9, "c": 8})
    added = one + other
    assert added.events == 30
    assert list(added.keys.items()) == [("b", 13), ("c", 8), ("a", 5)]
    assert parse_hot_keys(hot_keys_json(added)) == added


def test_few_are_kept() -> None:
    """However many keys there are, a batch's row stays short."""
    keys = {str(number): number for number in range(100)}
    assert list(hottest(keys)) == ["99", "98", "97", "96", "95"][:KEYS_KEPT]
