"""The databases of an output as JSON for the ledger."""

from __future__ import annotations

from typing import Any

from schemas.pipeline.checks.databases import HOME
from schemas.pipeline.outputs.append import AppendOutput
from schemas.pipeline.outputs.window import WindowOutput


def place_to_json(output: AppendOutput | WindowOutput) -> dict[str, Any]:
    """Describe an output's databases; empty for the home, as before others existed.

    A connection string is not part of it: it may change without changing the pipeline.
    """
    place: dict[str, Any] = {}
    if output.databases != (HOME,):
        place["databases"] = list(output.databases)
    if output.shard_by:
        place["shard_by"] = list(output.shard_by)
    return place
