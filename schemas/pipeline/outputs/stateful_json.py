"""Stateful outputs as JSON for the ledger; the code's version stands for functions."""

from __future__ import annotations

from typing import Any

from schemas.pipeline.outputs.stateful import StatefulOutput
from sinks.protocol.durations import format_duration


def stateful_to_json(output: StatefulOutput) -> dict[str, Any]:
    """Describe an output; there is no inverse, because JSON cannot hold a function."""
    return {
        "kind": "stateful",
        "table": output.table,
        "key": list(output.key),
        "columns": [list(column) for column in output.columns.items()],
        "state": [[name, type(kind).__name__] for name, kind in output.state.items()],
        "select": None if output.select is None else list(output.select),
        "ttl": None if output.ttl is None else format_duration(output.ttl),
        "version": output.version,
    }
