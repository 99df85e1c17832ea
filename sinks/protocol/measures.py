"""What a batch has cost, step by step: seconds, CPU, rows and bytes.

Measures travel with the votes and are written with the batch, so an attempt that did
not vote is never counted. No published result depends on them; only scaling decisions
do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from tallyweir.sinks.protocol.distributions import (
    Distribution,
    distribution_json,
    parse_distribution,
)
from tallyweir.sinks.protocol.hot_keys import HotKeys, hot_keys_json, parse_hot_keys

#: Microseconds are enough, and keep the text short.
_DIGITS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMeasure:
    """What one step took, in one task or in all tasks that voted.

    Attributes:
        seconds: Wall-clock time, added up over tasks, without the steps inside of it.
        seconds_max: The same for the task that took longest.
        cpu_seconds: CPU time of the threads that ran it, added up.
        rows_in: Rows that it was given.
        rows_out: Rows that it passed on.
        bytes: Size in memory of the rows that it passed on; 0 if it is not counted.
        tasks: How many tasks it ran in.
    """

    seconds: float = 0.0
    seconds_max: float = 0.0
    cpu_seconds: float = 0.0
    rows_in: int = 0
    rows_out: int = 0
    bytes: int = 0
    tasks: int = 0

    def __add__(self, other: StepMeasure) -> StepMeasure:
        """Put the measures of two tasks together."""
        return StepMeasure(
            seconds=self.seconds + other.seconds,
            seconds_max=max(self.seconds_max, other.seconds_max),
            cpu_seconds=self.cpu_seconds + other.cpu_seconds,
            rows_in=self.rows_in + other.rows_in,
            rows_out=self.rows_out + other.rows_out,
            bytes=self.bytes + other.bytes,
            tasks=self.tasks + other.tasks,
        )


_NAMES = tuple(one.name for one in fields(StepMeasure))
_Addable = TypeVar("_Addable", int, float, StepMeasure, Distribution, HotKeys)
_Name = TypeVar("_Name", int, str)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """What a task, a phase or a whole batch has measured.

    Attributes:
        steps: By the name of the step.
        seconds: Seconds of the driver, by its work: ``between``, ``plan``, ``stage``,
            ``wait``, ``publish`` and its parts, such as ``publish_lock``.
        cpu_seconds: CPU seconds by process: ``driver``, ``jvm``, ``tasks``.
        task_seconds: Seconds of each task that voted, from its first row to its vote.
        slots: Number of tasks that could have run at a time; 0 if unknown.
        counts: Counters of the pipeline's own functions.
        distributions: Values that these functions have observed.
        hot_keys: The hottest keys by output, for windows and keyed state.
        ages: Committed events by their age, in the buckets of ``ages.py``. In a task's
            measures it is the age when its batch was planned, in a batch's the age
            right before its COMMIT.
        ids: Lookups in the catalog, by the driver: IDs that were ``asked`` for, IDs
            that the filters could not spare a search (``looked_up``), and IDs whose
            search found something (``met``).
    """

    steps: Mapping[str, StepMeasure] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    cpu_seconds: Mapping[str, float] = field(default_factory=dict)
    task_seconds: tuple[float, ...] = ()
    slots: int = 0
    counts: Mapping[str, float] = field(default_factory=dict)
    distributions: Mapping[str, Distribution] = field(default_factory=dict)
    hot_keys: Mapping[str, HotKeys] = field(default_factory=dict)
    ages: Mapping[int, int] = field(default_factory=dict)
    ids: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: Measures) -> Measures:
        """Put the measures of two tasks, phases or batches together."""
        return Measures(
            steps=_added(self.steps, other.steps, StepMeasure()),
            seconds=_added(self.seconds, other.seconds, 0.0),
            cpu_seconds=_added(self.cpu_seconds, other.cpu_seconds, 0.0),
            task_seconds=(*self.task_seconds, *other.task_seconds),
            slots=max(self.slots, other.slots),
            counts=_added(self.counts, other.counts, 0.0),
            distributions=_added(
                self.distributions, other.distributions, Distribution()
            ),
            hot_keys=_added(self.hot_keys, other.hot_keys, HotKeys()),
            ages=_added(self.ages, other.ages, 0),
            ids=_added(self.ids, other.ids, 0),
        )


NOTHING_MEASURED = Measures()


def sum_measures(measures: Iterable[Measures]) -> Measures:
    """Add up several measures."""
    return sum(measures, NOTHING_MEASURED)


def cpu_of_tasks(tasks: Iterable[Measures]) -> Measures:
    """Add up the CPU seconds of tasks that ran in processes of their own."""
    steps = (step for task in tasks for step in task.steps.values())
    return Measures(cpu_seconds={"tasks": sum(step.cpu_seconds for step in steps)})


def measures_json(measures: Measures) -> dict[str, Any]:
    """Return plain values for JSON, without empty ones."""
    return {
        name: value
        for name, value in {
            "steps": {
                step: _without_nothing(one) for step, one in measures.steps.items()
            },
            "seconds": _rounded(measures.seconds),
            "cpu_seconds": _rounded(measures.cpu_seconds),
            "task_seconds": [round(one, _DIGITS) for one in measures.task_seconds],
            "slots": measures.slots,
            "counts": dict(measures.counts),
            "distributions": {
                name: distribution_json(one)
                for name, one in measures.distributions.items()
            },
            "hot_keys": {
                output: hot_keys_json(one) for output, one in measures.hot_keys.items()
            },
            "ages": {str(bucket): events for bucket, events in measures.ages.items()},
            "ids": dict(measures.ids),
        }.items()
        if value
    }


def parse_measures(value: Mapping[str, Any]) -> Measures:
    """Read what ``measures_json`` wrote, and ignore unknown names.

    A ledger may hold measures that a newer or an older release of Tallyweir has
    written.
    """
    return Measures(
        steps={
            step: StepMeasure(**{n: v for n, v in one.items() if n in _NAMES})
            for step, one in value.get("steps", {}).items()
        },
        seconds=value.get("seconds", {}),
        cpu_seconds=value.get("cpu_seconds", {}),
        task_seconds=tuple(value.get("task_seconds", ())),
        slots=value.get("slots", 0),
        counts=value.get("counts", {}),
        distributions={
            name: parse_distribution(one)
            for name, one in value.get("distributions", {}).items()
        },
        hot_keys={
            output: parse_hot_keys(one)
            for output, one in value.get("hot_keys", {}).items()
        },
        ages={int(bucket): n for bucket, n in value.get("ages", {}).items()},
        ids=value.get("ids", {}),
    )


def _added(
    one: Mapping[_Name, _Addable], other: Mapping[_Name, _Addable], nothing: _Addable
) -> dict[_Name, _Addable]:
    return {
        name: one.get(name, nothing) + other.get(name, nothing)
        for name in {**one, **other}
    }


def _rounded(seconds: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, _DIGITS) for name, value in seconds.items()}


def _without_nothing(step: StepMeasure) -> dict[str, float]:
    values = ((name, getattr(step, name)) for name in _NAMES)
    return {name: round(value, _DIGITS) for name, value in values if value}
