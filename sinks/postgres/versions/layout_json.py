"""A pipeline's tables as JSON, with which the next version is compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sinks.postgres.outputs.append_table import AppendTable
from sinks.postgres.outputs.home_layout import HomeLayout, Output
from sinks.postgres.outputs.keyed_table import KeyedTable
from sinks.postgres.outputs.window_kinds import SessionWindows
from sinks.postgres.outputs.window_table import WindowTable
from sinks.postgres.server.branch_names import HOME
from sinks.postgres.server.columns import Column
from sinks.postgres.server.naming import revisions_table


def layout_to_json(layout: HomeLayout) -> dict[str, Any]:
    """Describe all tables of a pipeline; durations are microseconds."""
    return {
        "horizon_us": layout.horizon_us,
        "writers": [list(writer) for writer in layout.writers],
        "outputs": [_output_to_json(output) for output in layout.outputs],
    }


def names_functions(layout: Mapping[str, Any]) -> bool:
    """Tell whether a layout names its aggregates' functions; older ones did not."""
    return all(
        "function" in aggregate
        for output in layout["outputs"]
        for aggregate in output.get("aggregates", ())
    )


def _output_to_json(output: Output) -> dict[str, Any]:
    described: dict[str, Any] = {
        "table": output.table,
        "kind": output.kind,
        "is_home": output.branches == (HOME,),
    }
    if isinstance(output, AppendTable):
        described["columns"] = _columns(output.columns)
    elif isinstance(output, KeyedTable):
        described["columns"] = _columns(output.result_columns)
        described["key"] = _columns(output.key)
    elif isinstance(output, WindowTable):
        described |= _window_to_json(output)
    return described


def _window_to_json(output: WindowTable) -> dict[str, Any]:
    windows = output.windows
    return {
        "columns": _columns(output.result_columns),
        "revisions": revisions_table(output.table) if output.keeps_revisions else None,
        "windows": (
            {"gap_us": windows.gap_us}
            if isinstance(windows, SessionWindows)
            else {
                "size_us": windows.size_us,
                "every_us": windows.every_us,
                "time_zone": windows.time_zone,
            }
        ),
        "keys": _columns(output.keys),
        "allowed_lateness_us": output.allowed_lateness_us,
        "discards": output.discards,
        "waits": output.waits,
        "aggregates": [
            {
                "column": one.column.name,
                "type": one.column.postgres_type,
                "function": one.function.value,
                "number": one.number,
                "state": _columns(partial.column for partial in one.partials),
            }
            for one in output.aggregates
        ],
        # Name, type, and whether it is compared by bytes.
        "state": [
            *([name, kind, False] for name, kind in _columns(output.state_keys)),
            *(
                [one.column.name, one.column.postgres_type, one.is_bytewise]
                for one in output.partials
            ),
        ],
    }


def _columns(columns: Iterable[Column]) -> list[list[str]]:
    return [[column.name, column.postgres_type] for column in columns]
