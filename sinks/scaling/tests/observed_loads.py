"""Loads as a driver observes them, and what is decided look by look."""

from __future__ import annotations

from collections.abc import Sequence

from tallyweir.sinks.scaling.bounds import Bounds, Range
from tallyweir.sinks.scaling.decision import (
    LOWER_PAUSE_S,
    Limits,
    ScalingDecision,
    Standing,
    decide,
)
from tallyweir.sinks.scaling.load import LOAD_WINDOW_S, Observation

LOOK_S = 5.0
NO_LIMITS = Limits(tasks=1_000)
FREE = Bounds(executors=Range(least=1, most=16))


def recent(seen: Sequence[Observation]) -> list[Observation]:
    """Return what a driver still knows of them."""
    oldest = seen[-1].at_s - LOWER_PAUSE_S - LOAD_WINDOW_S
    return [one for one in seen if one.at_s >= oldest]


def stands(executors: int | None = 1, batch: int | None = None) -> Standing:
    """Say what stands, unchanged since the first look."""
    return Standing(
        executors=executors,
        batch_offsets=batch,
        executors_changed_at_s=0.0,
        batch_changed_at_s=0.0,
    )


def decide_all(
    bounds: Bounds,
    seen: Sequence[Observation],
    standing: Standing,
    limits: Limits = NO_LIMITS,
) -> list[ScalingDecision]:
    """Decide at each look, from what stands after the one before."""
    decisions = []
    for last in range(len(seen)):
        decisions.append(decide(bounds, limits, recent(seen[: last + 1]), standing))
        standing = decisions[-1].standing
    return decisions


def steady(  # noqa: PLR0913 - each is a figure of the load
    *,
    seconds: float = 300,
    arriving: float,
    done: float,
    busy: float,
    executors: int,
    backlog: int = 0,
    full: tuple[float, ...] = (),
) -> list[Observation]:
    """Make observations of a load that does not change."""
    looks = int(seconds / LOOK_S) + 1
    return [
        Observation(
            at_s=n * LOOK_S,
            arrived=backlog + int(n * LOOK_S * arriving),
            published=int(n * LOOK_S * done),
            busy_s=n * LOOK_S * busy * executors,
            executors=executors,
            full_batches_s=full,
        )
        for n in range(looks)
    ]
