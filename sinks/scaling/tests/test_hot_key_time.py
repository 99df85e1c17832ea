"""How much of a batch's work is its hottest key's, by what its tasks have told."""

from __future__ import annotations

import pytest

from tallyweir.sinks.protocol.measures import (
    NOTHING_MEASURED,
    HotKeys,
    Measures,
    StepMeasure,
)
from tallyweir.sinks.scaling.load import hot_key_seconds, step_seconds

_KEYED = ("totals", "alarms")


def _measures(seconds: float, **hot_keys: HotKeys) -> Measures:
    return Measures(
        steps={"keys": StepMeasure(seconds=seconds, tasks=2)}, hot_keys=hot_keys
    )


@pytest.mark.parametrize(
    ("measures", "seconds"),
    [
        (_measures(10, totals=HotKeys(events=100, keys={"a": 90, "b": 5})), 9),
        # One key is worked on at a time in each output.
        (
            _measures(
                10,
                totals=HotKeys(events=100, keys={"a": 90}),
                alarms=HotKeys(events=100, keys={"a": 20}),
            ),
            4.5,
        ),
        # A window's key is spread over the tasks.
        (
            _measures(
                10,
                by_hour=HotKeys(events=100, keys={"a": 90}),
                totals=HotKeys(events=100, keys={"b": 1}),
            ),
            0.1,
        ),
        (_measures(10, by_hour=HotKeys(events=100, keys={"a": 90})), 0),
        (_measures(10, totals=HotKeys()), 0),
        (Measures(hot_keys={"totals": HotKeys(events=1, keys={"a": 1})}), 0),
        (NOTHING_MEASURED, 0),
    ],
)
def test_the_hottest_key_has_its_share_of_the_time(
    measures: Measures, seconds: float
) -> None:
    """Of outputs with keyed state only, and by its events."""
    assert hot_key_seconds(measures, _KEYED) == pytest.approx(seconds)


def test_all_steps_count_as_work() -> None:
    """What is divided among executors, and what is not."""
    steps = {"keys": StepMeasure(seconds=3), "decode": StepMeasure(seconds=0.5)}
    assert step_seconds(Measures(steps=steps)) == pytest.approx(3.5)
    assert step_seconds(NOTHING_MEASURED) == 0
