"""Each axis varies one thing, from a point that all have in common."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from tallyweir.services.dev.bench.scale import AXES, BASE, tables, workload_at


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


def test_the_table_has_a_row_for_each_point() -> None:
    """People read these, programs the JSON."""
    point = {
        "value": 1_000_000,
        "cold_events_per_second": 105_232,
        "events_per_second": 137_825,
        "cpu_seconds_per_million": {"jvm": 6.42, "postgres": 2.48},
        "log_bytes_per_event": 208,
        "shuffled_bytes_per_event": 0.0,
        "seconds_per_batch": {"plan": 0.1, "stage": 1.5, "publish": 0.25},
    }
    ((columns, rows),) = tables({"axes": {"window_keys": [point]}})
    ((*row,),) = rows
    assert len(columns) == len(row)
    assert ["window keys", "1,000,000", "105,232", "137,825", "8.90", 208, 0.0] == row[
        :7
    ]
