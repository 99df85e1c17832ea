"""A window output as JSON for the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from schemas.pipeline.checks.databases import HOME
from schemas.pipeline.outputs.aggregate import Aggregate, AggregateFunction
from schemas.pipeline.outputs.place_json import place_to_json
from schemas.pipeline.outputs.window import Late, WindowOutput
from schemas.pipeline.outputs.window_kinds import (
    UTC,
    Fixed,
    Session,
    Sliding,
    WindowKind,
)
from schemas.pipeline.outputs.window_panes import Early, EarlyPanes, Panes
from sinks.protocol.durations import format_duration, parse_duration


def window_to_json(output: WindowOutput) -> dict[str, Any]:
    """Describe a window output so that ``window_from_json`` returns an equal one."""
    return {
        "kind": "window",
        "table": output.table,
        **_kind_to_json(output.windows),
        "by": list(output.by),
        "aggregates": [
            {
                "column": aggregate.column,
                "function": aggregate.function.value,
                "argument": aggregate.argument,
                **(
                    {}
                    if aggregate.fraction is None
                    else {"fraction": aggregate.fraction}
                ),
            }
            for aggregate in output.aggregates
        ],
        "allowed_lateness": format_duration(output.allowed_lateness),
        "late": output.late.value,
        **_panes_to_json(output),
        **({} if output.metrics is None else {"metrics": output.metrics}),
        **place_to_json(output),
    }


def window_from_json(definition: Mapping[str, Any]) -> WindowOutput:
    """Build the window output that ``window_to_json`` described."""
    return WindowOutput(
        table=definition["table"],
        windows=_kind_from_json(definition),
        by=tuple(definition["by"]),
        aggregates=tuple(
            Aggregate(
                column=one["column"],
                function=AggregateFunction(one["function"]),
                argument=one["argument"],
                fraction=one.get("fraction"),
            )
            for one in definition["aggregates"]
        ),
        allowed_lateness=parse_duration(definition["allowed_lateness"]),
        late=Late(definition["late"]),
        early=_early_from_json(definition.get("early", Early.BATCH.value)),
        panes=Panes(definition.get("panes", Panes.ACCUMULATING)),
        metrics=definition.get("metrics"),
        databases=tuple(definition.get("databases", (HOME,))),
        shard_by=tuple(definition.get("shard_by", ())),
        where=definition.get("where"),
    )


def _panes_to_json(output: WindowOutput) -> dict[str, Any]:
    """Describe the panes without defaults, which keeps the hash."""
    described: dict[str, Any] = {}
    if isinstance(output.early, timedelta):
        described["early"] = format_duration(output.early)
    elif output.early is not Early.BATCH:
        described["early"] = output.early.value
    if output.panes is not Panes.ACCUMULATING:
        described["panes"] = output.panes.value
    return described


def _early_from_json(text: str) -> EarlyPanes:
    return Early(text) if text in set(Early) else parse_duration(text)


def _kind_to_json(windows: WindowKind) -> dict[str, Any]:
    """Describe the kind; fixed windows in UTC as before, which keeps their hash."""
    if isinstance(windows, Session):
        return {"gap": format_duration(windows.gap)}
    described = {"size": format_duration(windows.size)}
    if isinstance(windows, Sliding):
        described["every"] = format_duration(windows.every)
    if windows.time_zone != UTC:
        described["time_zone"] = windows.time_zone
    return described


def _kind_from_json(definition: Mapping[str, Any]) -> WindowKind:
    if "gap" in definition:
        return Session(gap=parse_duration(definition["gap"]))
    size = parse_duration(definition["size"])
    zone = definition.get("time_zone", UTC)
    if "every" in definition:
        every = parse_duration(definition["every"])
        return Sliding(size=size, every=every, time_zone=zone)
    return Fixed(size=size, time_zone=zone)
