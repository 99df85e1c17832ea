"""A pipeline and its executors in simulated time: the same run gives the same figures.

An executor works off so many offsets a second and takes a while to start; nothing else
slows it. So what the figures show is the rules' doing, and not a machine's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tallyweir.sinks.scaling.bounds import Bounds, Range
from tallyweir.sinks.scaling.decision import (
    BUSY_TARGET,
    CAUGHT_UP_S,
    LOWER_PAUSE_S,
    Limits,
    ScalingDecision,
    Standing,
    decide,
)
from tallyweir.sinks.scaling.load import LOAD_WINDOW_S, Observation

#: Offsets that one executor works off in a second.
CAPACITY = 1_000
#: Seconds until an executor that was asked for works.
START_S = 10
LOOK_S = 5
LEAST, MOST = 1, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a run cost, and how long results were waited for."""

    #: The longest time for which more than ``CAUGHT_UP_S`` of backlog waited.
    behind_s: int
    #: The largest backlog, in seconds of what arrived then.
    worst_backlog_s: float
    executor_s: int
    #: Of those, the ones beyond what the load of the moment needs.
    spare_s: int
    changes: int


class SimulatedCluster:
    """Runs ``decide`` over a load; ``fixed`` executors instead, if given."""

    def __init__(
        self, load: Callable[[int], float], seconds: int, fixed: int | None = None
    ) -> None:
        self.load = load
        self.seconds = seconds
        self.fixed = fixed
        self.decisions: list[ScalingDecision] = []
        #: Executors that are there, by second.
        self.running: list[int] = []

    def run(self) -> Figures:
        """Run it from an empty topic."""
        bounds = Bounds(executors=Range(least=LEAST, most=MOST))
        standing = Standing(
            executors=self.fixed or LEAST,
            batch_offsets=None,
            executors_changed_at_s=0.0,
            batch_changed_at_s=0.0,
        )
        running = standing.executors or 0
        starting: list[int] = []
        seen: list[Observation] = []
        arrived = published = busy_s = 0.0
        behind = longest = executor_s = spare_s = changes = 0
        worst = 0.0
        for now in range(self.seconds):
            running += sum(at <= now for at in starting)
            starting = [at for at in starting if at > now]
            rate = self.load(now)
            arrived += rate
            done = min(arrived - published, running * CAPACITY)
            published += done
            busy_s += done / CAPACITY
            executor_s += running
            self.running.append(running)
            backlog_s = (arrived - published) / max(rate, CAPACITY)
            worst = max(worst, backlog_s)
            behind = behind + 1 if backlog_s > CAUGHT_UP_S else 0
            longest = max(longest, behind)
            if not behind:
                needed = max(LEAST, math.ceil(rate / (CAPACITY * BUSY_TARGET)))
                spare_s += max(0, running - needed)
            if self.fixed is not None or now % LOOK_S:
                continue
            seen.append(
                Observation(
                    at_s=float(now),
                    arrived=int(arrived),
                    published=int(published),
                    busy_s=busy_s,
                    executors=running,
                )
            )
            seen = [s for s in seen if s.at_s >= now - LOWER_PAUSE_S - LOAD_WINDOW_S]
            decision = decide(bounds, Limits(tasks=1_000), seen, standing)
            self.decisions.append(decision)
            asked, stood = decision.standing.executors, standing.executors
            assert asked is not None
            assert stood is not None
            changes += asked != stood
            if asked < running + len(starting):
                running, starting = min(running, asked), starting[: asked - running]
            more = asked - running - len(starting)
            starting += [now + START_S] * max(0, more)
            standing = decision.standing
        return Figures(
            behind_s=longest,
            worst_backlog_s=worst,
            executor_s=executor_s,
            spare_s=spare_s,
            changes=changes,
        )


#: Departures from New York's airports in each hour of July 1st to 7th, 2013 (UTC): a
#: week of a stream that people have made
#: (``tallyweir.services.local.datasets.flights``).
_DEPARTURES = """
53 39 8 4 0 0 0 0 0 7 82 68 76 56 53 49 53 55 62 72 59 68 58 58
45 33 8 4 0 0 0 0 0 6 73 65 75 56 50 47 54 53 65 68 58 73 57 55
44 34 8 4 0 0 0 0 0 7 81 68 77 55 51 46 55 55 67 70 58 74 60 65
49 34 7 4 0 0 0 0 0 6 63 53 56 52 42 41 48 46 50 57 42 54 38 34
25 21 5 4 0 0 0 0 0 5 57 44 56 51 45 43 50 50 63 65 51 62 52 54
36 27 7 4 0 0 0 0 0 6 66 51 71 48 41 39 45 47 55 62 54 59 49 49
28 24 7 4 0 0 0 0 0 5 57 58 72 51 42 46 54 52 62 72 59 74 60 64
"""
_HOUR_S = 300


def spike(now_s: int) -> float:
    """Half of what one executor does, and eleven times as much for two minutes."""
    return 5_500 if 600 <= now_s < 720 else 500


def daily_wave(now_s: int) -> float:
    """From next to nothing to almost all executors and back, in four hours."""
    return 3_000 - 2_800 * math.cos(2 * math.pi * now_s / (4 * 3_600))


def drip(now_s: int) -> float:
    """Twenty offsets a second, and every five minutes some thousand more at once."""
    return 4_000 if now_s % 300 == 299 else 20


def recorded_week(now_s: int) -> float:
    """The recorded week, an hour of it in five minutes, at 70 offsets a departure."""
    hours = [int(word) for word in _DEPARTURES.split()]
    return hours[now_s // _HOUR_S % len(hours)] * 70


def loads() -> Iterator[tuple[str, Callable[[int], float], int]]:
    """Name each load, with how many seconds of it are run."""
    yield "spike", spike, 3_600
    yield "daily wave", daily_wave, 2 * 4 * 3_600
    yield "drip", drip, 3_600
    yield "recorded week", recorded_week, 168 * _HOUR_S


def print_table() -> None:
    """Print the table of docs/scaling.md."""
    for name, load, seconds in loads():
        for label, fixed in (("steered", None), ("8 fixed", 8), ("4 fixed", 4)):
            found = SimulatedCluster(load, seconds, fixed).run()
            print(  # noqa: T201 - it is what the program is for
                f"| {name} | {label} | {found.behind_s} | {found.worst_backlog_s:.0f} "
                f"| {found.executor_s:,} | {found.spare_s:,} | {found.changes} |"
            )


if __name__ == "__main__":
    print_table()
