"""The hottest keys of a task's windows and functions, found in the rows it stages."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from tallyweir.sinks.postgres.outputs.keyed_table import KEY
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.outputs.window_columns import WINDOW_EVENTS
from tallyweir.sinks.protocol.hot_keys import KEYS_KEPT, HotKeys, hottest

_HIDDEN_BYTES = 6


def find_hot_keys(
    layout: PipelineLayout, table: str, rows: pa.Table
) -> dict[str, HotKeys]:
    """Find the hottest keys among rows that are about to be staged.

    Args:
        layout: The pipeline's tables.
        table: The staging table. Only tables of windows and keyed state have hot keys.
        rows: The rows for that table.

    Returns:
        The hot keys by the output's table; at most one entry.
    """
    for output in layout.outputs:
        if output.staging_table != table or not rows.num_rows:
            continue
        if output.index_key:
            by = [column.name for column in output.index_key]
            return {output.table: _of_partials(rows, by)}
        if output.text_key:
            return {output.table: _of_events(rows.column(KEY.name))}
    return {}


def hide_keys(found: Mapping[str, HotKeys], secret: bytes) -> dict[str, HotKeys]:
    """Replace keys by hashes, because a key may be a person's name.

    Args:
        found: Hot keys by output.
        secret: The installation's secret, so that trying keys does not reveal one.
    """

    def hidden(key: str) -> str:
        digest = hashlib.blake2b(
            key.encode(), key=secret, digest_size=_HIDDEN_BYTES, person=b"hot keys"
        )
        return f"#{digest.hexdigest()}"

    return {
        output: HotKeys(
            events=one.events,
            keys={hidden(key): events for key, events in one.keys.items()},
        )
        for output, one in found.items()
    }


def _of_partials(rows: pa.Table, by: list[str]) -> HotKeys:
    """Look at the groups with the most events; one key may have several groups."""
    events = WINDOW_EVENTS.column.name
    chosen = pc.select_k_unstable(rows, KEYS_KEPT, [(events, "descending")])
    keys: dict[str, int] = {}
    for row in rows.select([*by, events]).take(chosen).to_pylist():
        key = json.dumps([row[name] for name in by], default=str, ensure_ascii=False)
        keys[key] = keys.get(key, 0) + row[events]
    return HotKeys(events=pc.sum(rows.column(events)).as_py(), keys=hottest(keys))


def _of_events(keys: pa.ChunkedArray) -> HotKeys:
    counted = pc.value_counts(keys).flatten()
    found = dict(zip(counted[0].to_pylist(), counted[1].to_pylist(), strict=True))
    return HotKeys(events=len(keys), keys=hottest(found))
