"""Checks that a pipeline's outputs stay where they are: a table's rows in one place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tallyweir.sinks.postgres.server.branch_names import HOME
from tallyweir.sinks.postgres.versions.version_plan import (
    Finding,
    PlanVerdict,
    Reckoning,
)


def find_moved(stored: Mapping[str, Any], definition: Mapping[str, Any]) -> Reckoning:
    """Find outputs that would write a table's rows to other databases than before.

    The rows that are written would stay where they are, and windows that are still open
    would begin again from nothing elsewhere. The number of branches that publish an
    output in its database may change.

    Args:
        stored: The pipeline's definition as it last ran.
        definition: The definition that it is to run now.
    """
    before = {output["table"]: _place_of(output) for output in stored["outputs"]}
    findings = []
    for output in definition["outputs"]:
        table, place = output["table"], _place_of(output)
        if before.get(table, place) != place:
            finding = Finding(
                verdict=PlanVerdict.INCOMPATIBLE,
                code="OUTPUT_MOVED",
                subject=f"output {table}",
                saw=f"The output {table} moves from {_text(before[table])} to "
                f"{_text(place)}.",
                why="Its existing rows would stay behind, and its open windows would "
                "be split.",
                fix="Undo the change, or give the output another table.",
            )
            findings.append(finding)
    return Reckoning(findings=tuple(findings))


def _place_of(output: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    # Definitions leave out the home, as they did before there were other databases.
    return output.get("databases", [HOME]), output.get("shard_by", [])


def _text(place: tuple[list[str], list[str]]) -> str:
    databases, shard_by = place
    by = f" by {', '.join(shard_by)}" if shard_by else ""
    return f"{', '.join(databases)}{by}"
