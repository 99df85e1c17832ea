"""What a batch has cost, step by step, and what it measured of its events; all adds up.

Measures travel with the votes and are written with the batch, so an attempt that did
not vote is never counted. No published result depends on them; only scaling decisions
do.

- Costs are seconds, CPU, rows and bytes of each step.
- Distributions are of values that a pipeline's own functions observe.
- Fields that the pipeline does not name are counted by their paths.
- Hot keys are the keys with most events, as far as each task can tell by itself.
- Ages say how old committed events are: counts by eighths of powers of two. A task
  counts its events by their age when the batch was planned. Until the COMMIT, all
  events of the batch age by the same seconds. Adding the same seconds to each age does
  not increase its relative error, so results are at most a tenth off, however long a
  batch takes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

#: The bucket of values that are not above zero.
NOT_POSITIVE = -1_075


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Some values, counted by powers of two.

    Attributes:
        count: Number of values.
        total: Their sum.
        least: The least value; None without values.
        greatest: The greatest value; None without values.
        buckets: Number of values that are at most two to the power of the key and above
            half of that. ``NOT_POSITIVE`` counts those that are not above zero.
    """

    count: int = 0
    total: float = 0.0
    least: float | None = None
    greatest: float | None = None
    buckets: Mapping[int, int] = field(default_factory=dict)

    def __add__(self, other: Distribution) -> Distribution:
        """Put the values of two tasks together."""
        return Distribution(
            count=self.count + other.count,
            total=self.total + other.total,
            least=min(_known(self.least, other.least), default=None),
            greatest=max(_known(self.greatest, other.greatest), default=None),
            buckets={
                power: self.buckets.get(power, 0) + other.buckets.get(power, 0)
                for power in sorted({*self.buckets, *other.buckets})
            },
        )

    def quantile(self, share: float) -> float | None:
        """Return a bound for a share of the values, at most twice the true quantile."""
        wanted = math.ceil(share * self.count)
        seen = 0
        for power, count in sorted(self.buckets.items()):
            seen += count
            if seen >= wanted and self.greatest is not None:
                bound = 0.0 if power == NOT_POSITIVE else math.ldexp(1.0, power)
                return min(bound, self.greatest)
        return None


def distribution_of(values: Iterable[float]) -> Distribution:
    """Return the distribution of finite values."""
    found = list(values)
    buckets: dict[int, int] = {}
    for value in found:
        power = _power(value)
        buckets[power] = buckets.get(power, 0) + 1
    return Distribution(
        count=len(found),
        total=math.fsum(found),
        least=min(found, default=None),
        greatest=max(found, default=None),
        buckets=buckets,
    )


def distribution_json(one: Distribution) -> dict[str, Any]:
    """Return plain values for JSON."""
    return {
        "count": one.count,
        "total": one.total,
        "least": one.least,
        "greatest": one.greatest,
        "buckets": {str(power): count for power, count in one.buckets.items()},
    }


def parse_distribution(value: Mapping[str, Any]) -> Distribution:
    """Read what ``distribution_json`` wrote."""
    return Distribution(
        count=value["count"],
        total=value["total"],
        least=value["least"],
        greatest=value["greatest"],
        buckets={int(power): count for power, count in value["buckets"].items()},
    )


def _power(value: float) -> int:
    if value <= 0:
        return NOT_POSITIVE
    fraction, power = math.frexp(value)
    # A power of two is the greatest value of its bucket.
    return power - 1 if fraction == 0.5 else power  # noqa: PLR2004 - a half


def _known(*values: float | None) -> list[float]:
    return [value for value in values if value is not None]


#: Number of keys kept for each output, in a task and in a batch.
KEYS_KEPT = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class HotKeys:
    """The hottest keys of one output.

    Attributes:
        events: Number of events of all keys.
        keys: The hottest keys, each with a lower bound of its events: a key is counted
            only in tasks where it is among the hottest.
    """

    events: int = 0
    keys: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: HotKeys) -> HotKeys:
        """Put the keys of two tasks together, and keep the hottest."""
        added = {
            key: self.keys.get(key, 0) + other.keys.get(key, 0)
            for key in {**self.keys, **other.keys}
        }
        return HotKeys(events=self.events + other.events, keys=hottest(added))


def hottest(keys: Mapping[str, int]) -> dict[str, int]:
    """Choose the keys with most events, the hottest first."""
    ordered = sorted(keys.items(), key=lambda one: (-one[1], one[0]))
    return dict(ordered[:KEYS_KEPT])


def hot_keys_json(one: HotKeys) -> dict[str, Any]:
    """Return plain values for JSON; lists keep their order."""
    return {"events": one.events, "keys": [list(key) for key in one.keys.items()]}


def parse_hot_keys(value: Mapping[str, Any]) -> HotKeys:
    """Read what ``hot_keys_json`` wrote."""
    return HotKeys(events=value["events"], keys=dict(value["keys"]))


#: The most names of unnamed fields that a task or a batch keeps.
UNNAMED_KEPT = 64

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
        ages: Committed events by their age, in the buckets of ``age_bucket``. In a
            task's measures it is the age when its batch was planned, in a batch's the
            age right before its COMMIT.
        ids: Lookups in the catalog, by the driver: IDs that were ``asked`` for, IDs
            that the filters could not spare a search (``looked_up``), and IDs whose
            search found something (``met``).
        unnamed: The number of events with each field that the pipeline does not name,
            by the field's path.
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
    unnamed: Mapping[str, int] = field(default_factory=dict)

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
            unnamed=_most(_added(self.unnamed, other.unnamed, 0)),
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
            "unnamed": dict(measures.unnamed),
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
        unnamed=value.get("unnamed", {}),
    )


def _added(
    one: Mapping[_Name, _Addable], other: Mapping[_Name, _Addable], nothing: _Addable
) -> dict[_Name, _Addable]:
    return {
        name: one.get(name, nothing) + other.get(name, nothing)
        for name in {**one, **other}
    }


def _most(counts: Mapping[str, int]) -> dict[str, int]:
    """Keep the names with the highest counts."""
    ordered = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    return dict(ordered[:UNNAMED_KEPT])


def _rounded(seconds: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, _DIGITS) for name, value in seconds.items()}


def _without_nothing(step: StepMeasure) -> dict[str, float]:
    values = ((name, getattr(step, name)) for name in _NAMES)
    return {name: round(value, _DIGITS) for name, value in values if value}


#: Buckets to a power of two. Bucket 0 is a millisecond and less; bucket ``n`` is above
#: ``2 ** ((n - 1) / 8)`` and up to ``2 ** (n / 8)`` milliseconds.
BUCKETS_TO_A_POWER = 8
_LEAST_S = 0.001


def middle_age_s(bucket: int) -> float:
    """Return the seconds in the middle of a bucket."""
    return _LEAST_S * math.exp2((max(bucket, 1) - 0.5) / BUCKETS_TO_A_POWER)


def age_bucket(seconds: float) -> int:
    """Return the bucket of an age; the least one if the event is ahead of the clock."""
    powers = math.log2(max(seconds / _LEAST_S, 1.0))
    return math.ceil(powers * BUCKETS_TO_A_POWER)


def aged(ages: Mapping[int, int], seconds: float) -> dict[int, int]:
    """Return the ages that all events have some seconds later."""
    later: dict[int, int] = {}
    for bucket, events in ages.items():
        at = age_bucket(middle_age_s(bucket) + seconds)
        later[at] = later.get(at, 0) + events
    return later


def age_quantile_s(ages: Mapping[int, int], share: float) -> float | None:
    """Return the age that a share of the events do not exceed; None without events."""
    wanted = share * sum(ages.values())
    seen = 0
    for bucket, events in sorted(ages.items()):
        seen += events
        if events and seen >= wanted:
            return middle_age_s(bucket)
    return None
