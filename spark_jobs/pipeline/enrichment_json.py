"""An enrichment as JSON, for the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_jobs.pipeline.durations import format_duration, parse_duration
from spark_jobs.pipeline.enrichment import Enrichment


def enrichment_to_json(enrichment: Enrichment) -> dict[str, Any]:
    """Describe an enrichment so that ``enrichment_from_json`` gives it back."""
    return {
        "table": enrichment.table,
        "on": [list(pair) for pair in enrichment.on.items()],
        "select": [list(pair) for pair in enrichment.select.items()],
        "default": [list(pair) for pair in enrichment.default.items()],
        "refresh": format_duration(enrichment.refresh),
    }


def enrichment_from_json(definition: Mapping[str, Any]) -> Enrichment:
    """Build the enrichment that ``enrichment_to_json`` described."""
    return Enrichment(
        table=definition["table"],
        on=dict(definition["on"]),
        select=dict(definition["select"]),
        default=dict(definition["default"]),
        refresh=parse_duration(definition["refresh"]),
    )
