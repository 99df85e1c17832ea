"""A window output as JSON, for the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_jobs.pipeline.aggregate import Aggregate, AggregateFunction
from spark_jobs.pipeline.databases import HOME
from spark_jobs.pipeline.durations import format_duration, parse_duration
from spark_jobs.pipeline.place_json import place_to_json
from spark_jobs.pipeline.window import Late, WindowOutput


def window_to_json(output: WindowOutput) -> dict[str, Any]:
    """Describe a window output so that ``window_from_json`` gives it back."""
    return {
        "kind": "window",
        "table": output.table,
        "size": format_duration(output.size),
        "by": list(output.by),
        "aggregates": [
            {
                "column": aggregate.column,
                "function": aggregate.function.value,
                "argument": aggregate.argument,
            }
            for aggregate in output.aggregates
        ],
        "allowed_lateness": format_duration(output.allowed_lateness),
        "late": output.late.value,
        **place_to_json(output),
    }


def window_from_json(definition: Mapping[str, Any]) -> WindowOutput:
    """Build the window output that ``window_to_json`` described."""
    return WindowOutput(
        table=definition["table"],
        size=parse_duration(definition["size"]),
        by=tuple(definition["by"]),
        aggregates=tuple(
            Aggregate(
                column=one["column"],
                function=AggregateFunction(one["function"]),
                argument=one["argument"],
            )
            for one in definition["aggregates"]
        ),
        allowed_lateness=parse_duration(definition["allowed_lateness"]),
        late=Late(definition["late"]),
        databases=tuple(definition.get("databases", (HOME,))),
        shard_by=tuple(definition.get("shard_by", ())),
        where=definition.get("where"),
    )
