"""Decides how many executors a pipeline gets, and how large a batch may be.

The tests check what holds for every input. No decision is outside of the bounds. If two
pipelines differ only in their backlog, the one with more backlog never wants fewer
executors. A rise follows any change only after ``RAISE_PAUSE_S``, and a fall only after
``LOWER_PAUSE_S``. Only an operator's new bounds take effect at once.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from tallyweir.sinks.scaling.bounds import Bounds, Range
from tallyweir.sinks.scaling.load import Load, Observation, measure_load

#: Seconds in which a backlog should be worked off.
CATCH_UP_S = 60.0
#: Share of the cores that may be busy in the long run. The rest is for bursts of
#: events, and for the moments between two batches.
BUSY_TARGET = 0.75
#: Share of the cores that must be busy for more of them to help.
BUSY_MIN = 0.5
#: Below this share of busy cores, the executors do no measurable work.
IDLE_BELOW = 0.05
#: Seconds of backlog that a single batch accounts for.
CAUGHT_UP_S = 10.0
#: Seconds between a change and the next rise. An executor takes ten to start working.
RAISE_PAUSE_S = 30.0
#: Seconds between a change and the next fall. In all of them, fewer executors must have
#: been enough.
LOWER_PAUSE_S = 180.0

#: A full batch that takes less is too small: the fixed cost of a batch is too large a
#: part of it.
SHORT_BATCH_S = 5.0
#: A full batch that takes more is too large: results wait for its end, and a batch that
#: fails starts over. This is more than twice the above, so that no change causes
#: another.
LONG_BATCH_S = 30.0
#: Number of batches that a decision needs.
FULL_BATCHES_MIN = 3
#: Seconds of backlog that make a larger batch worth a new query, which takes seconds.
WORTH_A_QUERY_S = 60.0
#: Seconds between two changes of the batch size.
BATCH_PAUSE_S = 60.0


class Because(StrEnum):
    """The reason of a decision."""

    BOUNDS = "bounds"
    TOO_LITTLE_SEEN = "too_little_seen"
    ENOUGH = "enough"
    BACKLOG = "backlog"
    SPARE = "spare"
    IDLE = "idle"
    STUCK = "stuck"
    NOT_BUSY = "not_busy"
    AT_MOST = "at_most"
    HOT_KEY = "hot_key"
    NO_MORE_TASKS = "no_more_tasks"
    NO_MORE_CONNECTIONS = "no_more_connections"
    STILL_STARTING = "still_starting"
    COOLING_DOWN = "cooling_down"
    SHORT_BATCHES = "short_batches"
    LONG_BATCHES = "long_batches"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on the number of executors, apart from the bounds.

    Attributes:
        tasks: Largest number of tasks of a batch; an executor without a task is of no
            use.
        connections: Number of tasks that the databases have connections for; None if
            unknown.
    """

    tasks: int
    connections: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The last decision, and when it changed, by the observations' clock.

    A number that is None is not scaled.
    """

    executors: int | None
    batch_offsets: int | None
    executors_changed_at_s: float
    batch_changed_at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingDecision:
    """The numbers from now on, their reason, and what they were decided from.

    Attributes:
        now: The newest observation.
        standing: The numbers from now on.
        load: The load that they follow; None if too little was seen.
        wanted: Executors that the load asks for, whatever the bounds; None without a
            load, or if executors are not scaled.
        because: The reason, for programs.
        reason: The reason in words, with the figures.
    """

    bounds: Bounds
    limits: Limits
    now: Observation
    former: Standing
    standing: Standing
    load: Load | None
    wanted: int | None
    because: Because
    reason: str


@dataclass(frozen=True, slots=True)
class _Choice:
    number: int
    because: Because
    reason: str


def decide(
    bounds: Bounds, limits: Limits, seen: Sequence[Observation], former: Standing
) -> ScalingDecision:
    """Decide from the observations so far; the last one is of this moment.

    Args:
        bounds: The operator's bounds.
        limits: Limits of the pipeline and its databases.
        seen: Observations in order. They must reach back at least ``LOWER_PAUSE_S``
            plus the window of the load.
        former: The decision in force.
    """
    now_s = seen[-1].at_s
    load = measure_load(seen)
    executors = batch = None
    standing = former
    if bounds.executors is not None and former.executors is not None:
        executors = _choose_executors(bounds.executors, limits, seen, load, former)
        if executors.number != former.executors:
            standing = replace(
                standing,
                executors=executors.number,
                executors_changed_at_s=now_s,
            )
    if bounds.batch_offsets is not None and former.batch_offsets is not None:
        batch = _choose_batch(bounds.batch_offsets, seen, load, former)
        if batch.number != former.batch_offsets:
            standing = replace(
                standing, batch_offsets=batch.number, batch_changed_at_s=now_s
            )
    told = [choice for choice in (executors, batch) if choice is not None]
    changed = [
        choice
        for choice, stood in (
            (executors, former.executors),
            (batch, former.batch_offsets),
        )
        if choice is not None and choice.number != stood
    ]
    shown = (changed or told)[0]
    return ScalingDecision(
        bounds=bounds,
        limits=limits,
        now=seen[-1],
        former=former,
        standing=standing,
        load=load,
        wanted=_wanted_of(load, former),
        because=shown.because,
        reason=" ".join(choice.reason for choice in changed or told),
    )


def wanted_executors(load: Load, present: int) -> _Choice:
    """Return how many executors a load asks for, whatever the bounds."""
    backlog_s = load.backlog_s
    if backlog_s is None:
        return _Choice(
            present,
            Because.STUCK,
            f"{load.backlog:,} offsets wait and nothing is published: more executors "
            "do not help what is stuck.",
        )
    if load.busy < IDLE_BELOW or load.executors == 0 or load.rate == 0:
        if backlog_s <= CAUGHT_UP_S:
            return _Choice(0, Because.IDLE, "The executors have next to nothing to do.")
        return _Choice(present, Because.NOT_BUSY, _elsewhere(load))
    one_does = load.rate / (load.executors * load.busy)
    needed_rate = load.expected_rate + load.backlog / CATCH_UP_S
    wanted = max(1, math.ceil(needed_rate / (one_does * BUSY_TARGET)))
    if wanted > present and load.busy < BUSY_MIN:
        return _Choice(present, Because.NOT_BUSY, _elsewhere(load))
    return _Choice(
        wanted,
        Because.BACKLOG if wanted > present else Because.SPARE,
        f"One executor does {one_does:,.0f} offsets/s when busy; "
        f"{load.expected_rate:,.0f}/s are expected, and a backlog of {load.backlog:,} "
        f"({backlog_s:,.0f} s) is to be gone in {CATCH_UP_S:.0f} s: {wanted} at "
        f"{BUSY_TARGET:.0%} busy.",
    )


def _wanted_of(load: Load | None, former: Standing) -> int | None:
    if load is None or former.executors is None:
        return None
    return wanted_executors(load, former.executors).number


def _elsewhere(load: Load) -> str:
    return (
        f"{load.backlog:,} offsets wait, and the executors are busy for "
        f"{load.busy:.0%} only: what is slow is elsewhere, and more of them do not "
        "help it."
    )


def _choose_executors(
    bounds: Range,
    limits: Limits,
    seen: Sequence[Observation],
    load: Load | None,
    former: Standing,
) -> _Choice:
    present = former.executors
    assert present is not None, "executors are steered"
    if bounds.clamp(present) != present:
        return _Choice(
            bounds.clamp(present),
            Because.BOUNDS,
            f"The bounds are {bounds}, and it was {present}.",
        )
    if load is None:
        return _Choice(present, Because.TOO_LITTLE_SEEN, "Too little was seen yet.")
    ceiling = _ceiling(bounds, limits, load, seen[-1].cores, present)
    asked = wanted_executors(load, present)
    wanted = max(bounds.least, min(ceiling.number, asked.number))
    if wanted > present:
        return _raise(wanted, asked, seen[-1], former)
    if wanted < present:
        return _lower(wanted, asked, ceiling, seen, former)
    return _keep(present, asked, ceiling)


def _ceiling(
    bounds: Range, limits: Limits, load: Load, cores: int, present: int
) -> _Choice:
    """Return the most executors that are allowed and can help."""
    choices = [
        _Choice(bounds.most, Because.AT_MOST, f"No more than {bounds.most} may be."),
        _Choice(
            math.ceil(limits.tasks / cores),
            Because.NO_MORE_TASKS,
            f"A batch has {limits.tasks} tasks, and an executor runs {cores}.",
        ),
    ]
    if limits.connections is not None:
        choices.append(
            _Choice(
                limits.connections // cores,
                Because.NO_MORE_CONNECTIONS,
                f"The databases have connections for {limits.connections} tasks, and "
                f"an executor runs {cores}.",
            )
        )
    if load.hot_key_share > 0:
        # While one core works on the hottest key, so many executors reach BUSY_TARGET.
        share_of_one = load.hot_key_share * BUSY_TARGET * cores
        shared = math.floor(min(bounds.most, 1 / share_of_one))
        choices.append(
            _Choice(
                # Present executors still help a little, so this removes none of them.
                max(present, shared),
                Because.HOT_KEY,
                f"One key takes {load.hot_key_share:.0%} of the tasks' time, and one "
                "task does it: further executors would wait for that.",
            )
        )
    return min(choices, key=lambda choice: choice.number)


def _keep(present: int, asked: _Choice, ceiling: _Choice) -> _Choice:
    if asked.number > present:
        return _Choice(present, ceiling.because, f"{asked.reason} {ceiling.reason}")
    if asked.because in (Because.STUCK, Because.NOT_BUSY):
        return asked
    return _Choice(present, Because.ENOUGH, f"{asked.reason} It stays at {present}.")


def _raise(wanted: int, asked: _Choice, now: Observation, former: Standing) -> _Choice:
    present = former.executors
    assert present is not None
    if now.executors < present:
        return _Choice(
            present,
            Because.STILL_STARTING,
            f"{asked.reason} {present} were asked for, and {now.executors} are there.",
        )
    if now.at_s - former.executors_changed_at_s < RAISE_PAUSE_S:
        return _cooling(present, asked, RAISE_PAUSE_S)
    # The rate of one is measured on present executors; with many it may be lower.
    return _Choice(min(wanted, 2 * present), Because.BACKLOG, asked.reason)


def _lower(
    wanted: int,
    asked: _Choice,
    ceiling: _Choice,
    seen: Sequence[Observation],
    former: Standing,
) -> _Choice:
    present = former.executors
    assert present is not None
    now_s = seen[-1].at_s
    if now_s - max(former.executors_changed_at_s, seen[0].at_s) < LOWER_PAUSE_S:
        return _cooling(present, asked, LOWER_PAUSE_S)
    for last, one in enumerate(seen):
        if one.at_s < now_s - LOWER_PAUSE_S:
            continue
        load = measure_load(seen[: last + 1])
        if load is not None:
            then = wanted_executors(load, present).number
            wanted = max(wanted, min(ceiling.number, then))
    if wanted >= present:
        return _cooling(present, asked, LOWER_PAUSE_S)
    if asked.number >= present:
        return _Choice(wanted, ceiling.because, f"{asked.reason} {ceiling.reason}")
    return _Choice(wanted, asked.because, asked.reason)


def _cooling(present: int, asked: _Choice, pause_s: float) -> _Choice:
    return _Choice(
        present,
        Because.COOLING_DOWN,
        f"{asked.reason} That has to be so, unchanged, for {pause_s:.0f} s.",
    )


def _choose_batch(
    bounds: Range, seen: Sequence[Observation], load: Load | None, former: Standing
) -> _Choice:
    present = former.batch_offsets
    assert present is not None, "the batch size is steered"
    now_s = seen[-1].at_s
    if bounds.clamp(present) != present:
        return _Choice(
            bounds.clamp(present),
            Because.BOUNDS,
            f"A batch may have {bounds} offsets, and it was {present:,}.",
        )
    full = [
        seconds
        for one in seen
        # Batches before the last change had another size.
        if one.at_s > former.batch_changed_at_s
        for seconds in one.full_batches_s
    ]
    enough = _Choice(present, Because.ENOUGH, f"Batches of {present:,} are right.")
    if len(full) < FULL_BATCHES_MIN:
        return enough
    if now_s - former.batch_changed_at_s < BATCH_PAUSE_S:
        return enough
    typical_s = statistics.median(full)
    told = f"A full batch of {present:,} offsets takes {typical_s:.1f} s"
    backlog_s = None if load is None else load.backlog_s
    if (
        typical_s < SHORT_BATCH_S
        and backlog_s is not None
        and backlog_s >= WORTH_A_QUERY_S
        and present < bounds.most
    ):
        return _Choice(
            min(bounds.most, 2 * present),
            Because.SHORT_BATCHES,
            f"{told}, less than {SHORT_BATCH_S:.0f} s, and {backlog_s:,.0f} s of "
            "backlog wait.",
        )
    if typical_s > LONG_BATCH_S and present > bounds.least:
        return _Choice(
            max(bounds.least, present // 2),
            Because.LONG_BATCHES,
            f"{told}, more than {LONG_BATCH_S:.0f} s.",
        )
    return enough
