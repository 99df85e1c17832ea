"""A hot key is added up by every task, so windows need no salted shuffle for it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tallyweir.sinks.postgres.outputs.window_aggregates import (
    AggregateFunction,
    WindowAggregate,
)
from tallyweir.sinks.postgres.outputs.window_columns import LatePolicy, fixed_windows
from tallyweir.sinks.postgres.outputs.window_table import WindowTable
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.spark_jobs.source import event_columns as named
from tallyweir.spark_jobs.source.event_columns import argument_column
from tallyweir.spark_jobs.task.window_assignment import assign_windows
from tallyweir.spark_jobs.task.window_partials import aggregate_windows

_MINUTE_US = 60_000_000
_EVENTS = 40_000
_KEYS = 1_000
_TASKS = 4
_OUTPUT = WindowTable(
    table="w",
    staging_table="output_0",
    windows=fixed_windows(_MINUTE_US),
    by=(Column(name="key", postgres_type="bigint"),),
    aggregates=(
        WindowAggregate(
            column=Column(name="total", postgres_type="numeric"),
            function=AggregateFunction.SUM,
            number=0,
            partial_type="numeric",
        ),
    ),
    allowed_lateness_us=0,
    late=LatePolicy.REVISE,
)


def _staged(hot_share: float) -> list[pa.Table]:
    """Return what each task stages of a minute in which one key has such a share."""
    random = np.random.default_rng(20_261_124)
    keys = random.integers(1, _KEYS, _EVENTS)
    keys[random.random(_EVENTS) < hot_share] = 0
    times = random.integers(0, _MINUTE_US, _EVENTS)
    staged = []
    # Kafka's partitions give each task its events, whatever their keys.
    for own in np.array_split(np.arange(_EVENTS), _TASKS):
        events = pa.table(
            {
                "key": pa.array(keys[own]),
                argument_column(0, 0): pa.array(np.ones(len(own), dtype=np.int64)),
                named.EVENT_TIME: pa.array(times[own]).cast(pa.timestamp("us", "UTC")),
            }
        )
        assigned = assign_windows(times[own], _OUTPUT.windows)
        staged.append(aggregate_windows(events, assigned, _OUTPUT, 0))
    return staged


@pytest.mark.parametrize("hot_share", [0.5, 0.9, 1.0])
def test_a_hot_key_is_one_row_of_each_task(hot_share: float) -> None:
    """However many events it has, and no task has more of them than another."""
    events = [
        table.filter(pa.compute.equal(table.column("key"), 0))
        for table in _staged(hot_share)
    ]
    assert [table.num_rows for table in events] == [1] * _TASKS
    counts = [table.column(3)[0].as_py() for table in events]
    assert max(counts) < 1.1 * min(counts)
    assert sum(counts) >= hot_share * _EVENTS * 0.98


def test_the_hotter_a_key_the_fewer_rows_are_staged() -> None:
    """So skew makes a batch of windows cheaper to publish, never dearer."""
    rows = [
        sum(table.num_rows for table in _staged(share)) for share in (0.0, 0.9, 1.0)
    ]
    assert rows == sorted(rows, reverse=True)
    assert rows[0] == _TASKS * (_KEYS - 1)
    assert rows[2] == _TASKS
