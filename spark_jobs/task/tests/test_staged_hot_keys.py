"""Which keys a task finds hot in what it stages, and how they are hidden."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from tallyweir.sinks.postgres.outputs.keyed_table import KeyedTable
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.outputs.window_columns import LatePolicy, fixed_windows
from tallyweir.sinks.postgres.outputs.window_table import WindowTable
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.protocol.measures import HotKeys
from tallyweir.spark_jobs.task.task_measures import find_hot_keys, hide_keys

_ORIGIN = Column(name="origin", postgres_type="text")
_WINDOWS = WindowTable(
    table="by_hour",
    staging_table="output_0",
    windows=fixed_windows(3_600_000_000),
    by=(_ORIGIN,),
    aggregates=(),
    allowed_lateness_us=0,
    late=LatePolicy.DROP,
)
_KEYED = KeyedTable(
    table="totals",
    staging_table="output_1",
    event_columns=(),
    key=(_ORIGIN,),
    columns=(),
)
_LAYOUT = PipelineLayout(
    pipeline="p",
    definition="{}",
    definition_hash="hash",
    outputs=(_WINDOWS, _KEYED),
    shards=1,
    bucket_seconds=3600,
    watermark_delay_us=0,
    idle_timeout_us=0,
    horizon_us=None,
)


def test_a_keys_windows_count_together() -> None:
    """The events are those of all groups, the keys the hottest."""
    partials = pa.table(
        {"origin": ["JFK", "SFO", "JFK", "LAX"], "tallyweir_events": [5, 9, 6, 1]}
    )
    found = find_hot_keys(_LAYOUT, "output_0", partials)["by_hour"]
    assert found.events == 21
    keys = {'["JFK"]': 11, '["SFO"]': 9, '["LAX"]': 1}
    assert list(found.keys.items()) == list(keys.items())


def test_events_of_keyed_state_are_counted() -> None:
    """By the key's text, as it is stored."""
    rows = pa.table({"tallyweir_key": ['["a"]', '["b"]', '["a"]']})
    found = find_hot_keys(_LAYOUT, "output_1", rows)
    assert found == {"totals": HotKeys(events=3, keys={'["a"]': 2, '["b"]': 1})}


def test_other_rows_tell_nothing() -> None:
    """Dead letters have no keys, and windows without groups one for all."""
    rows = pa.table({"tallyweir_events": [3]})
    assert find_hot_keys(_LAYOUT, "dead_letter", rows) == {}
    ungrouped = replace(_LAYOUT, outputs=(replace(_WINDOWS, by=()),))
    assert find_hot_keys(ungrouped, "output_0", rows) == {}


def test_a_hidden_key_is_the_same_for_one_secret_only() -> None:
    """So it can be followed over batches, and not be found by trying."""
    found = {"totals": HotKeys(events=3, keys={'["a"]': 2})}
    hidden = hide_keys(found, b"1" * 16)
    assert hidden == hide_keys(found, b"1" * 16)
    assert hidden != hide_keys(found, b"2" * 16)
    assert hidden["totals"].events == 3
