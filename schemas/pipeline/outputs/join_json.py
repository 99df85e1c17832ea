"""Join outputs as JSON for the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from schemas.pipeline.outputs.join import JoinOutput, JoinSide, Unmatched, Within
from sinks.protocol.durations import format_duration, parse_duration


def join_to_json(output: JoinOutput) -> dict[str, Any]:
    """Describe an output so that ``join_from_json`` returns an equal one."""
    return {
        "kind": "join",
        "table": output.table,
        "on": list(output.on),
        "within": _within_to_json(output.within),
        **{
            name: {
                "where": side.where,
                "select": [list(pair) for pair in side.select.items()],
            }
            for name, side in output.both.items()
        },
        "unmatched": output.unmatched.value,
    }


def join_from_json(definition: Mapping[str, Any]) -> JoinOutput:
    """Build the output that ``join_to_json`` described."""
    return JoinOutput(
        table=definition["table"],
        on=tuple(definition["on"]),
        within=_within_from_json(definition["within"]),
        left=_side_from_json(definition["left"]),
        right=_side_from_json(definition["right"]),
        unmatched=Unmatched(definition["unmatched"]),
    )


def _side_from_json(definition: Mapping[str, Any]) -> JoinSide:
    return JoinSide(where=definition["where"], select=dict(definition["select"]))


def _within_to_json(within: timedelta | Within) -> str | dict[str, str]:
    if isinstance(within, timedelta):
        return format_duration(within)
    return {
        "before": format_duration(within.before),
        "after": format_duration(within.after),
    }


def _within_from_json(within: str | Mapping[str, str]) -> timedelta | Within:
    if isinstance(within, str):
        return parse_duration(within)
    return Within(
        before=parse_duration(within["before"]), after=parse_duration(within["after"])
    )
