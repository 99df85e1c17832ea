"""Where the time of a batch goes; the parts add up to the whole.

Batches overlap: one is published while the next is staged. A batch's time here is the
time of the driver's one loop, from when it could have begun the batch until it could
begin the next. Publishing counts only as far as the loop waits for it, so the largest
part is the one to improve.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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


def loop_seconds(measures: Measures) -> float:
    """Return how long the driver's loop worked on the batch."""
    seconds = measures.seconds
    return sum(seconds.get(name, 0.0) for name in (BETWEEN, "plan", "stage", "wait"))


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
