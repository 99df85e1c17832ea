"""Each axis varies one thing, from a point that all have in common."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from tallyweir.services.dev.bench.scale import AXES, BASE, workload_at


@pytest.mark.parametrize("axis", AXES)
def test_an_axis_varies_nothing_but_itself(axis: str) -> None:
    """Or its figures would say nothing of it."""
    for value in AXES[axis]:
        workload = workload_at(axis, value)
        assert value == asdict(workload)[axis]
        assert replace(workload, **{axis: asdict(BASE)[axis]}) == BASE


def test_the_base_is_on_every_axis_that_appends() -> None:
    """So that it is measured, and the axes can be compared."""
    assert "window_keys" in AXES
    for axis, values in AXES.items():
        assert (asdict(BASE)[axis] in values) == (axis != "window_keys"), axis
