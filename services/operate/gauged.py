"""The gauges of a pipeline, as plain values; docs/status.md has the formulas."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from tallyweir.sinks.postgres.audit import CommittedFigures
from tallyweir.sinks.postgres.records.pipeline_gauges import Gauges


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauged:
    """The last gauges of a pipeline.

    Attributes:
        gauges: The gauges that were stored, or would have been.
        committed: Figures of the batches of the last minute.
    """

    gauges: Gauges
    committed: CommittedFigures


def gauges_json(gauges: Gauges | None) -> dict[str, object] | None:
    """Return all gauges in one flat mapping; None without gauges."""
    if gauges is None:
        return None
    values: dict[str, object] = asdict(gauges)
    del values["home"]
    return values | asdict(gauges.home)
