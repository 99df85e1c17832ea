"""What keeps a pipeline, as ``status --json`` and the monitor say it."""

from __future__ import annotations

from dataclasses import asdict

from sinks.diagnosis.bottleneck import Bottleneck


def bottleneck_json(found: Bottleneck | None) -> dict[str, object] | None:
    """Return plain values; null while nobody can tell."""
    return None if found is None else {**asdict(found), "is_trouble": found.is_trouble}
