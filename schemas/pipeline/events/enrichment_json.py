"""An enrichment as JSON, for the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemas.pipeline.checks.databases import HOME
from schemas.pipeline.events.enrichment import AsOf, Enrichment
from sinks.protocol.durations import format_duration, parse_duration


def enrichment_to_json(enrichment: Enrichment) -> dict[str, Any]:
    """Describe an enrichment so that ``enrichment_from_json`` returns an equal one.

    It omits keys that a table in the home does not need, as before they existed.
    """
    place: dict[str, Any] = {
        "table": enrichment.table,
        "topic": enrichment.topic,
        "schema": enrichment.schema,
        "database": None if enrichment.database == HOME else enrichment.database,
        "as_of": None
        if enrichment.as_of is None
        else {
            "from": enrichment.as_of.valid_from,
            "until": enrichment.as_of.valid_until,
        },
    }
    return {
        **{key: value for key, value in place.items() if value is not None},
        "on": [list(pair) for pair in enrichment.on.items()],
        "select": [list(pair) for pair in enrichment.select.items()],
        "default": [list(pair) for pair in enrichment.default.items()],
        "refresh": format_duration(enrichment.refresh),
    }


def enrichment_from_json(definition: Mapping[str, Any]) -> Enrichment:
    """Build the enrichment that ``enrichment_to_json`` described."""
    as_of = definition.get("as_of")
    return Enrichment(
        table=definition.get("table"),
        database=definition.get("database", HOME),
        topic=definition.get("topic"),
        schema=definition.get("schema"),
        on=dict(definition["on"]),
        select=dict(definition["select"]),
        default=dict(definition["default"]),
        as_of=None
        if as_of is None
        else AsOf(valid_from=as_of["from"], valid_until=as_of["until"]),
        refresh=parse_duration(definition["refresh"]),
    )
