"""Where an output goes, as JSON for the ledger."""

from __future__ import annotations

from typing import Any

from spark_jobs.pipeline.append import AppendOutput
from spark_jobs.pipeline.databases import HOME
from spark_jobs.pipeline.window import WindowOutput


def place_to_json(output: AppendOutput | WindowOutput) -> dict[str, Any]:
    """Describe where an output goes; nothing for the home, as before there was more.

    Where a database is does not belong to it: that may change, and the pipeline is
    the same.
    """
    place: dict[str, Any] = {}
    if output.databases != (HOME,):
        place["databases"] = list(output.databases)
    if output.shard_by:
        place["shard_by"] = list(output.shard_by)
    return place
