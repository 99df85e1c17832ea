"""The part of a batch's work that further tasks cannot share, because of one key."""

from __future__ import annotations

from collections.abc import Collection

from tallyweir.sinks.protocol.measures import Measures

#: The step in which functions get the events of their keys.
_KEYS_STEP = "keys"


def step_seconds(measures: Measures) -> float:
    """Add up the seconds of all steps of a batch, over all of its tasks."""
    return sum(step.seconds for step in measures.steps.values())


def hot_key_seconds(measures: Measures, keyed: Collection[str]) -> float:
    """Estimate for how long one task worked on the hottest key of a batch.

    A function gets the events of its key one after the other, so the batch takes at
    least that long, however many executors run it. The estimate takes the key's share
    of the events as its share of the time. The tasks report a lower bound of the key's
    events, so the estimate tends to be too low: it overrates what executors can do.

    Args:
        measures: Measures of the batch.
        keyed: Tables of the outputs with keyed state, including joins. Windows do not
            count: each task adds up its own events of a key.
    """
    step = measures.steps.get(_KEYS_STEP)
    found = [one for table, one in measures.hot_keys.items() if table in keyed]
    events = sum(one.events for one in found)
    if step is None or not events:
        return 0.0
    of_hottest = max(count for one in found for count in one.keys.values())
    return step.seconds * of_hottest / events
