"""Where the time of a batch goes, part by part, and the figures of each part.

Batches overlap: one is published while the next is staged. A batch's time here is the
time of the driver's one loop, from when it could have begun the batch until it could
begin the next. Publishing counts only as far as the loop waits for it. The parts add up
to the whole, so the largest part is the one to improve.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tallyweir.sinks.protocol.measures import Measures, StepMeasure

#: Waiting for events, or for Spark to plan them.
BETWEEN = "between"
#: The part of phase one that neither tasks nor Python workers account for.
SPARK = "spark"
#: Steps of Spark's Python workers beneath the tasks.
PYTHON_STEPS = ("transform", "predict")
#: Steps of phase 2b, which runs while the loop waits.
KEY_STEPS = ("read_keys", "keys", "copy_keys")
COMMIT = "publish_commit"
_PUBLISH = "publish_"
#: CPU seconds by which rounding may change the sum over many steps.
_ROUNDING_S = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredBatch:
    """A published batch with its cost.

    Attributes:
        measures: What the batch has cost; empty if no measures were recorded.
    """

    sequence: int
    read: int
    committed: int
    dead: int
    measures: Measures


def staged_by_tasks(measures: Measures) -> bool:
    """Tell whether Spark's tasks staged a batch, and not the driver by itself."""
    keys_s = sum(
        step.cpu_seconds for name, step in measures.steps.items() if name in KEY_STEPS
    )
    return measures.cpu_seconds.get("tasks", 0.0) > keys_s + _ROUNDING_S


def time_by_part(measures: Measures) -> dict[str, float]:
    """Return the seconds of each part; their sum is the time of the loop.

    If a step runs in several tasks at a time, the seconds of the slowest task count.
    """
    seconds = measures.seconds
    parts = {name: seconds.get(name, 0.0) for name in (BETWEEN, "plan")}
    parts |= _fitted(_stage_parts(measures), seconds.get("stage", 0.0), rest=SPARK)
    waited = seconds.get("wait", 0.0)
    keys = {
        name: step.seconds_max
        for name, step in measures.steps.items()
        if name in KEY_STEPS
    }
    keys = _fitted(keys, min(waited, sum(keys.values())), rest=None)
    parts |= keys
    left = max(0.0, waited - sum(keys.values()))
    published = publish_parts(measures)
    whole = sum(published.values())
    for name, part in published.items():
        parts[name] = left * part / whole
    if not whole:
        parts["publish"] = left
    return parts


def added_parts(batches: Iterable[MeasuredBatch]) -> dict[str, float]:
    """Return the seconds of each part of some batches, added up."""
    added: dict[str, float] = {}
    for batch in batches:
        for name, seconds in time_by_part(batch.measures).items():
            added[name] = added.get(name, 0.0) + seconds
    return added


def publish_parts(measures: Measures) -> dict[str, float]:
    """Return the seconds of the parts of publishing, and of the COMMIT before it."""
    seconds = measures.seconds
    parts = {
        name: value for name, value in seconds.items() if name.startswith(_PUBLISH)
    }
    other = seconds.get("publish", 0.0) - sum(parts.values())
    if other > 0:
        # This covers branches in other databases, and new buckets of IDs.
        parts["publish_other"] = other
    if "commit_before" in seconds:
        parts[COMMIT] = seconds["commit_before"]
    return parts


def step_seconds(name: str, step: StepMeasure, measures: Measures) -> float:
    """Return the wall-clock seconds of a step, as far as they are known."""
    if name not in PYTHON_STEPS:
        return step.seconds_max
    # Spark adds up its workers' time over tasks that run at the same time.
    at_a_time = min(measures.slots, step.tasks) or 1
    return step.seconds / at_a_time


def _stage_parts(measures: Measures) -> dict[str, float]:
    parts = {
        name: step_seconds(name, step, measures)
        for name, step in measures.steps.items()
        if name not in KEY_STEPS
    }
    python = sum(parts.get(name, 0.0) for name in PYTHON_STEPS)
    # Tasks wait for the Python workers, unless a shuffle lies between.
    if "read" in parts:
        parts["read"] = max(0.0, parts["read"] - python)
    return parts


def _fitted(
    parts: Mapping[str, float], whole: float, *, rest: str | None
) -> dict[str, float]:
    """Make parts add up to a whole: add a rest, or scale them down if they exceed."""
    total = sum(parts.values())
    if total > whole:
        return {name: part * whole / total for name, part in parts.items()}
    left = {} if rest is None else {rest: whole - total}
    return {**parts, **left}


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
