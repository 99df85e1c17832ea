"""The newest rows of each step, as ``samples --json`` and the page show them."""

from __future__ import annotations

from tallyweir.sinks.postgres.audit import KeptSamples
from tallyweir.sinks.protocol.samples import row_json


def samples_json(pipeline: str, found: KeptSamples) -> dict[str, object]:
    """Return plain values; the values of rows are text."""
    return {
        "pipeline": pipeline,
        "samples": found.limit,
        "steps": [
            {
                "step": one.step,
                "output": one.output,
                "batch": one.sequence,
                "published_at": one.published_at,
                "redacted": list(one.redacted),
                "rows": [row_json(row) for row in one.rows],
            }
            for one in found.steps
        ],
    }
