"""What commands with ``--json`` and the monitor show alike, as plain values.

docs/status.md has the formulas of the gauges.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from tallyweir.sinks.diagnosis.bottleneck import Bottleneck
from tallyweir.sinks.postgres.audit import CommittedFigures, KeptSamples
from tallyweir.sinks.postgres.records.pipeline_gauges import Gauges
from tallyweir.sinks.protocol.samples import row_json


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


def bottleneck_json(found: Bottleneck | None) -> dict[str, object] | None:
    """Return plain values; None while the bottleneck is unknown."""
    return None if found is None else {**asdict(found), "is_trouble": found.is_trouble}


def line_to_add(path: str) -> str:
    """Return the line that reads a field; of Protobuf only its number is known."""
    _, mark, number = path.rpartition("#")
    if mark and number.isdecimal():
        return f"number {number} of the .proto file's message"
    return f"{path}: jsonb"


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
