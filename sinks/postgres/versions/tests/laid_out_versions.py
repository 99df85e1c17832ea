"""Versions of a pipeline as they are laid out, and what a home holds of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tallyweir.sinks.postgres.versions import comparison
from tallyweir.sinks.postgres.versions.held_knowledge import HeldKnowledge
from tallyweir.sinks.postgres.versions.holdings import HeldTable, Holdings
from tallyweir.sinks.postgres.versions.version_plan import (
    DescribedVersion,
    PlannedFate,
    PlanVerdict,
    VersionPlan,
)

#: The counted aggregate that most windows have.
COUNTED = ("views=count(*)",)

HOUR_US = 3_600_000_000
_SOURCE: dict[str, Any] = {
    "topic": "views",
    "schema": "view.v1",
    "event_id": {"field": "id"},
    "event_time": "at",
    "watermark_delay": "1 minute",
}
COLUMNS = [["id", "text"], ["page", "text"]]
_STATE = [
    ["window_start", "timestamp with time zone", False],
    ["window_end", "timestamp with time zone", False],
    ["page", "text", False],
    ["tallyweir_events", "bigint", False],
]


def append(columns: list[list[str]] = COLUMNS, **place: object) -> dict[str, Any]:
    """Lay out an append output."""
    return {
        "said": {"table": "views", "kind": "append", "columns": None},
        "table": "views",
        "kind": "append",
        "is_home": True,
        "columns": columns,
    } | place


def windows(*aggregates: str, **changed: object) -> dict[str, Any]:
    """Lay out windows with an aggregate for each ``name=function(argument)``."""
    parsed = [text.partition("=")[::2] for text in aggregates]
    state = list(_STATE)
    laid_out = []
    for number, (column, _) in enumerate(parsed):
        name = f"tallyweir_a{number}_count"
        state.append([name, "bigint", False])
        laid_out.append(
            {"column": column, "type": "bigint", "state": [[name, "bigint"]]}
        )
    return {
        "said": {
            "table": "by_page",
            "kind": "window",
            "aggregates": [
                {
                    "column": column,
                    "function": function.partition("(")[0],
                    "argument": function.partition("(")[2].rstrip(")"),
                }
                for column, function in parsed
            ],
        },
        "table": "by_page",
        "kind": "window",
        "is_home": True,
        "columns": [
            ["window_start", "timestamp with time zone"],
            ["page", "text"],
            *([column, "bigint"] for column, _ in parsed),
            ["final", "boolean"],
        ],
        "revisions": "by_page_revisions",
        "windows": {"size_us": 60, "every_us": 60, "time_zone": "UTC"},
        "keys": [["window_start", "timestamp with time zone"], ["page", "text"]],
        "allowed_lateness_us": 30,
        "discards": False,
        "waits": False,
        "aggregates": laid_out,
        "state": state,
    } | changed


def keyed(said: Mapping[str, Any], **changed: object) -> dict[str, Any]:
    """Lay out an output with state; ``said`` is what its definition says."""
    return {
        "said": {"table": "reports", "kind": "stateful", "version": 1, **said},
        "table": "reports",
        "kind": "stateful",
        "is_home": True,
        "columns": [["machine", "text"]],
        "key": [["machine", "text"]],
    } | changed


def version(
    *outputs: dict[str, Any],
    source: Mapping[str, Any] | None = None,
    definition: Mapping[str, Any] | None = None,
    **changed: object,
) -> DescribedVersion:
    """Put outputs together; what else is given, the layout has."""
    said = {
        "name": "views",
        "source": _SOURCE | dict(source or {}),
        "outputs": [output["said"] for output in outputs],
        **(definition or {}),
    }
    laid_out = [
        {key: value for key, value in output.items() if key != "said"}
        for output in outputs
    ]
    layout = {
        "horizon_us": 24 * HOUR_US,
        "writers": [[1, "view.v1"]],
        "outputs": laid_out,
    } | changed
    return DescribedVersion(
        definition=said, definition_hash=repr((said, layout)), layout=layout
    )


def held(output: dict[str, Any], **more: object) -> HeldTable:
    """Return what a home holds of an output that has been written."""
    columns = {name: (kind, True) for name, kind in output["columns"]}
    state = tuple(name for name, *_ in output.get("state", ()))
    values: dict[str, Any] = {"columns": columns, "state_columns": state, **more}
    return HeldTable(**values)


def holdings(
    *outputs: dict[str, Any],
    has_events: bool = True,
    **more: object,
) -> Holdings:
    """Return what a home holds of some outputs."""
    tables = {output["table"]: held(output, **more) for output in outputs}
    return Holdings(
        number=7,
        bucket_seconds=3600,
        watermark_us=100 * HOUR_US,
        tables=tables,
        has_events=has_events,
    )


def compare(
    former: DescribedVersion,
    wanted: DescribedVersion,
    holdings: Holdings,
    held: HeldKnowledge | None = None,
) -> VersionPlan:
    """Hold one version against another."""
    return comparison.compare(former, wanted, holdings, held or HeldKnowledge())


def codes(plan: VersionPlan) -> set[str]:
    """Return why it cannot be."""
    return {finding.code for finding in plan.of(PlanVerdict.INCOMPATIBLE)}


def fates(plan: VersionPlan) -> dict[str, PlannedFate]:
    """Return what becomes of each kind of state."""
    return {one.state: one.fate for one in plan.reckoning.fates}
