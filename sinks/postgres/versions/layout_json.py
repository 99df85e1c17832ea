"""A pipeline's tables as JSON, with which the next version is compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tallyweir.sinks.postgres.outputs.output import Output
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.server.branch_names import HOME


def layout_to_json(layout: PipelineLayout) -> dict[str, Any]:
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
    return {
        "table": output.table,
        "kind": output.kind.name,
        "is_home": output.branches == (HOME,),
        **output.described(),
    }
