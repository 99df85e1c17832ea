"""Figures of each part of the newest batches, for people to compare."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tallyweir.sinks.diagnosis.batch_time import (
    BETWEEN,
    KEY_STEPS,
    MeasuredBatch,
    added_parts,
    publish_parts,
    step_seconds,
)
from tallyweir.sinks.protocol.measures import Measures

_BOXES = {
    "read": "decode",
    "windows": "stage",
    "make_rows": "stage",
    "copy": "stage",
    **dict.fromkeys(KEY_STEPS, "keys"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFigures:
    """One part of a batch, or one box of the job graph, over some batches.

    Attributes:
        step: Its name.
        rows_per_s: Rows that went through it per second of its own; None if no rows are
            counted.
        p50_s: Seconds in the median batch; for a step in several tasks, those of the
            slowest task.
        p95_s: Seconds that 95 % of the batches do not exceed.
        share: Share of the driver's loop; work outside the loop has no share.
        cpu_s: CPU seconds per batch; None if they are not measured.
        bytes: Bytes per batch; None if they are not measured.
    """

    step: str
    rows_per_s: float | None
    p50_s: float
    p95_s: float
    share: float
    cpu_s: float | None
    bytes: float | None


class PartFigures:
    """The figures of some batches.

    Args:
        batches: Batches with measures.
    """

    def __init__(self, batches: Sequence[MeasuredBatch]) -> None:
        self._batches = batches
        self._seconds = [_seconds(batch.measures) for batch in batches]
        parts = added_parts(batches)
        whole = sum(parts.values())
        self._shares = {n: s / whole if whole else 0.0 for n, s in parts.items()}
        self._parts = list(dict.fromkeys(part for one in self._seconds for part in one))

    def of_parts(self) -> tuple[StepFigures, ...]:
        """Return the figures of each part, in the order of a batch."""
        return tuple(self._of(part, [part]) for part in self._parts)

    def of_boxes(self) -> dict[str, StepFigures]:
        """Return the figures of each box of the job graph that has figures."""
        boxes: dict[str, list[str]] = {}
        for part in self._parts:
            boxes.setdefault(_box_of(part), []).append(part)
        return {box: self._of(box, parts) for box, parts in boxes.items()}

    def _of(self, name: str, parts: Sequence[str]) -> StepFigures:
        each = [sum(one.get(part, 0.0) for part in parts) for one in self._seconds]
        steps = [
            step
            for batch in self._batches
            for part in parts
            if (step := batch.measures.steps.get(part)) is not None
        ]
        rows = sum(self._rows(name, parts))
        size = sum(step.bytes for step in steps)
        batches = len(self._batches)
        return StepFigures(
            step=name,
            rows_per_s=rows / sum(each) if rows and any(each) else None,
            p50_s=_quantile(each, 0.5),
            p95_s=_quantile(each, 0.95),
            share=sum(self._shares.get(part, 0.0) for part in parts),
            cpu_s=sum(s.cpu_seconds for s in steps) / batches if steps else None,
            bytes=size / batches if size else None,
        )

    def _rows(self, name: str, parts: Sequence[str]) -> Iterator[int]:
        """Yield the rows of each batch; in a box, each row passes through all steps."""
        for batch in self._batches:
            if name == "publish":
                yield batch.read
                continue
            steps = (batch.measures.steps.get(part) for part in parts)
            yield max((max(s.rows_in, s.rows_out) for s in steps if s), default=0)


def _box_of(part: str) -> str:
    return "publish" if part.startswith("publish") else _BOXES.get(part, part)


def _seconds(measures: Measures) -> dict[str, float]:
    """Return the seconds of each part, whether or not the driver's loop waited."""
    seconds = {
        name: measures.seconds[name]
        for name in (BETWEEN, "plan")
        if name in measures.seconds
    }
    for name, step in measures.steps.items():
        seconds[name] = step_seconds(name, step, measures)
    return seconds | publish_parts(measures)


def _quantile(values: Iterable[float], share: float) -> float:
    """Return the least value that a share of all values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
