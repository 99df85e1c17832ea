"""What the monitor may show of a pipeline, as JSON for the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_jobs.pipeline.monitoring import Monitoring


def monitoring_to_json(monitoring: Monitoring) -> dict[str, Any]:
    """Describe what was said, and nothing where nothing was."""
    said = {
        "show_keys": monitoring.show_keys,
        "samples": monitoring.samples,
        "redact": list(monitoring.redact),
    }
    written = {name: value for name, value in said.items() if value}
    return {"monitor": written} if written else {}


def monitoring_from_json(definition: Mapping[str, Any]) -> Monitoring:
    """Build what ``monitoring_to_json`` described, out of a pipeline's definition."""
    written = definition.get("monitor", {})
    return Monitoring(**{**written, "redact": tuple(written.get("redact", ()))})
