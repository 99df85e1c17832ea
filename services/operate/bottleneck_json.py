"""The bottleneck of a pipeline, as ``status --json`` and the monitor show it."""

from __future__ import annotations

from dataclasses import asdict

from tallyweir.sinks.diagnosis.bottleneck import Bottleneck


def bottleneck_json(found: Bottleneck | None) -> dict[str, object] | None:
    """Return plain values; None while the bottleneck is unknown."""
    return None if found is None else {**asdict(found), "is_trouble": found.is_trouble}
