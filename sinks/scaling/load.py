"""What a driver sees of its pipeline, and the load that it makes of that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

#: Seconds over which rates are taken. A batch of the greatest size takes half as long.
LOAD_WINDOW_S = 60.0
#: Seconds of it that must have been seen; over less, one batch makes the rate.
LOAD_WINDOW_MIN_S = 15.0
#: For how many seconds ahead the trend of what arrives is drawn out: about as long as a
#: new executor takes until it works.
LEAD_S = 30.0
#: What a trend may add to the rate of arrival, as a share of it: a burst is no trend.
TREND_MAX = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What a driver saw at one moment.

    Attributes:
        at_s: The moment, by a clock that never goes back.
        arrived: Sum of the partitions' ends, up to which they can be read.
        published: Sum of the partitions' next offsets, as last published.
        busy_s: Seconds that executors' cores have spent on tasks, since whenever.
        executors: Executors that are there.
        cores: Tasks that one executor runs at a time.
        full_batches_s: Seconds of each batch that was published since the observation
            before, and that was as large as a batch may be.
        steps_s: Seconds that the steps of published batches took, added up over their
            tasks, since whenever.
        hot_key_s: Of these, what went to the hottest key of each batch; 0 where keys
            are not worked on one by one.
    """

    at_s: float
    arrived: int
    published: int
    busy_s: float = 0.0
    executors: int = 0
    cores: int = 1
    full_batches_s: tuple[float, ...] = ()
    steps_s: float = 0.0
    hot_key_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a pipeline had to do, and did, over the seconds before a moment.

    Attributes:
        backlog: Offsets that have arrived and are not published, at the moment.
        arrival_rate: Offsets that arrived a second.
        expected_rate: The same, a little ahead by its trend.
        rate: Offsets that were published a second.
        busy: Share of the executors' cores that ran a task; 0 to 1.
        executors: How many were there, on average.
        hot_key_share: Share of the batches' steps that was for the hottest key of each,
            one task at a time; 0 to 1.
    """

    backlog: int
    arrival_rate: float
    expected_rate: float
    rate: float
    busy: float
    executors: float
    hot_key_share: float = 0.0

    @property
    def backlog_s(self) -> float | None:
        """Seconds that the backlog is worth at the rate; None while nothing moves."""
        if self.backlog == 0:
            return 0.0
        return self.backlog / self.rate if self.rate > 0 else None


def measure_load(seen: Sequence[Observation]) -> Load | None:
    """Return the load at the last of some observations; None if too little was seen.

    Args:
        seen: In their order; what is older than the window plays no part.
    """
    window = _window(seen)
    if not window or window[-1].at_s - window[0].at_s < LOAD_WINDOW_MIN_S:
        return None
    first, last = window[0], window[-1]
    seconds = last.at_s - first.at_s
    arrival_rate = max(0, last.arrived - first.arrived) / seconds
    core_s = executor_s = 0.0
    for before, after in pairwise(window):
        passed = after.at_s - before.at_s
        # Executors that came or went in between count half.
        executors = (before.executors + after.executors) / 2
        executor_s += executors * passed
        core_s += executors * after.cores * passed
    busy_s = max(0.0, last.busy_s - first.busy_s)
    steps_s = last.steps_s - first.steps_s
    return Load(
        backlog=max(0, last.arrived - last.published),
        arrival_rate=arrival_rate,
        expected_rate=_expected_rate(window, arrival_rate),
        rate=max(0, last.published - first.published) / seconds,
        busy=min(1.0, busy_s / core_s) if core_s > 0 else 0.0,
        executors=executor_s / seconds,
        # Both are of the very batches, unlike what Spark tells of its executors.
        hot_key_share=(last.hot_key_s - first.hot_key_s) / steps_s if steps_s else 0.0,
    )


def _window(seen: Sequence[Observation]) -> Sequence[Observation]:
    begin = seen[-1].at_s - LOAD_WINDOW_S if seen else 0.0
    return [one for one in seen if one.at_s >= begin]


def _expected_rate(window: Sequence[Observation], arrival_rate: float) -> float:
    """Draw a rising rate out; a falling one is believed when it has fallen."""
    first, last = window[0], window[-1]
    middle_s = (first.at_s + last.at_s) / 2
    half = next(one for one in window if one.at_s >= middle_s)
    if not first.at_s < half.at_s < last.at_s:
        return arrival_rate
    former = max(0, half.arrived - first.arrived) / (half.at_s - first.at_s)
    latter = max(0, last.arrived - half.arrived) / (last.at_s - half.at_s)
    apart_s = (last.at_s - first.at_s) / 2
    ahead = latter + (latter - former) / apart_s * LEAD_S
    return max(arrival_rate, min(ahead, (1 + TREND_MAX) * latter))
