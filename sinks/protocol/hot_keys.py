"""The keys with most events, as far as each task can tell by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: Number of keys kept for each output, in a task and in a batch.
KEYS_KEPT = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class HotKeys:
    """The hottest keys of one output.

    Attributes:
        events: Number of events of all keys.
        keys: The hottest keys, each with a lower bound of its events: a key is counted
            only in tasks where it is among the hottest.
    """

    events: int = 0
    keys: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: HotKeys) -> HotKeys:
        """Put the keys of two tasks together, and keep the hottest."""
        added = {
            key: self.keys.get(key, 0) + other.keys.get(key, 0)
            for key in {**self.keys, **other.keys}
        }
        return HotKeys(events=self.events + other.events, keys=hottest(added))


def hottest(keys: Mapping[str, int]) -> dict[str, int]:
    """Choose the keys with most events, the hottest first."""
    ordered = sorted(keys.items(), key=lambda one: (-one[1], one[0]))
    return dict(ordered[:KEYS_KEPT])


def hot_keys_json(one: HotKeys) -> dict[str, Any]:
    """Return plain values for JSON; lists keep their order."""
    return {"events": one.events, "keys": [list(key) for key in one.keys.items()]}


def parse_hot_keys(value: Mapping[str, Any]) -> HotKeys:
    """Read what ``hot_keys_json`` wrote."""
    return HotKeys(events=value["events"], keys=dict(value["keys"]))
