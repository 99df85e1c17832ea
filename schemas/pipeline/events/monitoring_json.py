"""Monitoring settings as JSON for the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemas.pipeline.events.monitoring import Monitoring


def monitoring_to_json(monitoring: Monitoring) -> dict[str, Any]:
    """Describe the settings that differ from the defaults; empty if none does."""
    said = {
        "show_keys": monitoring.show_keys,
        "samples": monitoring.samples,
        "redact": list(monitoring.redact),
    }
    written = {name: value for name, value in said.items() if value}
    return {"monitor": written} if written else {}


def monitoring_from_json(definition: Mapping[str, Any]) -> Monitoring:
    """Build the settings that ``monitoring_to_json`` described."""
    written = definition.get("monitor", {})
    return Monitoring(**{**written, "redact": tuple(written.get("redact", ()))})
