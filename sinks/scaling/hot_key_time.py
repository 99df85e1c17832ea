"""The part of a batch's work that no further task could share, because of one key."""

from __future__ import annotations

from collections.abc import Collection

from sinks.protocol.measures import Measures

#: The step in which functions get the events of their keys.
_KEYS_STEP = "keys"


def step_seconds(measures: Measures) -> float:
    """Add up what all steps of a batch took, in all of its tasks."""
    return sum(step.seconds for step in measures.steps.values())


def hot_key_seconds(measures: Measures, keyed: Collection[str]) -> float:
    """Estimate for how long one task worked on the hottest key of a batch.

    A function gets the events of its key one after the other, so that is how long the
    batch takes at least, whatever is there to run it. The key's share of the time is
    taken to be its share of the events, of which the tasks have told at least those
    that it has: so the estimate is rather too low, and promises too much of executors.

    Args:
        measures: Of the batch.
        keyed: Tables of the outputs with keyed state, joins among them. Windows are
            none: each task adds up its own events of a key.
    """
    step = measures.steps.get(_KEYS_STEP)
    found = [one for table, one in measures.hot_keys.items() if table in keyed]
    events = sum(one.events for one in found)
    if step is None or not events:
        return 0.0
    of_hottest = max(count for one in found for count in one.keys.values())
    return step.seconds * of_hottest / events
