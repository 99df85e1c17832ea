"""What a driver observes of its pipeline, and the load that follows from it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tallyweir.sinks.protocol.measures import Measures

#: Seconds over which rates are taken. The largest batch takes half as long.
LOAD_WINDOW_S = 60.0
#: Seconds of it that must have been seen. Over less time, one batch dominates the rate.
LOAD_WINDOW_MIN_S = 15.0
#: How many seconds ahead the trend of arrivals is extrapolated: about as long as a new
#: executor takes until it works.
LEAD_S = 30.0
#: Limit on what a trend adds, as a share of the arrival rate: a burst is not a trend.
TREND_MAX = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What a driver saw at one moment.

    Attributes:
        at_s: The moment, by a clock that never goes back.
        arrived: Sum of the partitions' ends, up to which they can be read.
        published: Sum of the partitions' next offsets, as last published.
        busy_s: Seconds that executors' cores have spent on tasks, since any fixed
            start.
        executors: Number of executors that are present.
        cores: Number of tasks that one executor runs at a time.
        full_batches_s: Seconds of each batch that was published since the previous
            observation and had the largest size allowed.
        steps_s: Seconds that the steps of published batches took, added up over their
            tasks, since any fixed start.
        hot_key_s: Those of these seconds that went to the hottest key of each batch; 0
            if keys are not worked on one by one.
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
    """The work of a pipeline, waiting and done, over the seconds before a moment.

    Attributes:
        backlog: Offsets that have arrived and are not published, at that moment.
        arrival_rate: Offsets that arrived per second.
        expected_rate: Offsets expected per second a little later, by the trend.
        rate: Offsets that were published per second.
        busy: Share of the executors' cores that ran a task; 0 to 1.
        executors: Average number of executors.
        hot_key_share: Share of the batches' step time that went to the hottest key of
            each batch, one task at a time; 0 to 1.
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
        """Seconds to publish the backlog at the rate; None while nothing moves."""
        if self.backlog == 0:
            return 0.0
        return self.backlog / self.rate if self.rate > 0 else None


def measure_load(seen: Sequence[Observation]) -> Load | None:
    """Return the load at the last of some observations; None if too little was seen.

    Args:
        seen: Observations in order; those older than the window are ignored.
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
        # Executors that started or ended in between count half.
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
        # Both cover the same batches, unlike Spark's figures of its executors.
        hot_key_share=(last.hot_key_s - first.hot_key_s) / steps_s if steps_s else 0.0,
    )


def _window(seen: Sequence[Observation]) -> Sequence[Observation]:
    begin = seen[-1].at_s - LOAD_WINDOW_S if seen else 0.0
    return [one for one in seen if one.at_s >= begin]


def _expected_rate(window: Sequence[Observation], arrival_rate: float) -> float:
    """Extrapolate a rising rate; a falling rate counts only once it has fallen."""
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


#: The step in which functions get the events of their keys.
_KEYS_STEP = "keys"


def step_seconds(measures: Measures) -> float:
    """Add up the seconds of all steps of a batch, over all of its tasks."""
    return sum(step.seconds for step in measures.steps.values())


def hot_key_seconds(measures: Measures, keyed: Collection[str]) -> float:
    """Estimate for how long one task worked on the hottest key of a batch.

    A function gets the events of its key one after the other, so the batch takes at
    least that long, however many executors run it. The estimate takes the key's share
    of the events as its share of the time. The tasks report a lower bound of the key's
    events, so the estimate tends to be too low: it overrates what executors can do.

    Args:
        measures: Measures of the batch.
        keyed: Tables of the outputs with keyed state, including joins. Windows do not
            count: each task adds up its own events of a key.
    """
    step = measures.steps.get(_KEYS_STEP)
    found = [one for table, one in measures.hot_keys.items() if table in keyed]
    events = sum(one.events for one in found)
    if step is None or not events:
        return 0.0
    of_hottest = max(count for one in found for count in one.keys.values())
    return step.seconds * of_hottest / events
