"""Measure how far events come after newer events of their partition.

That is how a pipeline's watermark judges them: an event is late if it lies further
behind the newest event of its partition than ``watermark_delay``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta

import numpy as np

from tallyweir.sinks.seen_ids.ordering import I64Array

_MICROS_OF_MS = 1_000
#: Delays above it are kept with three digits, so that memory is bounded.
_EXACT_MS = 1_000
_FUTURE = timedelta(days=1) // timedelta(microseconds=1)
_MINUTE_MS = 60_000
_DAY_MS = 86_400_000
#: Delays that people write, in minutes.
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440)


@dataclass(slots=True)
class DisorderMeter:
    """The disorder of one possible event time.

    Attributes:
        now: The clock, in microseconds; it moves the watermark no further.
        newest: By partition, the newest time so far.
        lags: By milliseconds, rounded up: how many events lie so far behind.
        longest: The furthest that an event lies behind, in microseconds.
        future: Events more than a day ahead, which become dead letters.
    """

    now: int
    newest: dict[int, int] = field(default_factory=dict)
    lags: Counter[int] = field(default_factory=Counter)
    longest: int = 0
    future: int = 0

    @property
    def events(self) -> int:
        """The events that were measured."""
        return self.lags.total()

    def add(self, partitions: I64Array, micros: I64Array) -> None:
        """Note events; those of a partition come in the order of offsets."""
        is_ahead = micros > self.now + _FUTURE
        if is_ahead.any():
            self.future += int(is_ahead.sum())
            partitions, micros = partitions[~is_ahead], micros[~is_ahead]
        for partition in np.unique(partitions).tolist():
            own = micros[partitions == partition]
            newest = np.maximum.accumulate(np.minimum(own, self.now))
            newest = np.maximum(newest, self.newest.get(partition, newest[0]))
            self.newest[partition] = int(newest[-1])
            lags = np.maximum(newest - own, 0)
            self.longest = max(self.longest, int(lags.max()))
            found, counts = np.unique(_milliseconds(lags), return_counts=True)
            for lag, count in zip(found.tolist(), counts.tolist(), strict=True):
                self.lags[lag] += count

    @property
    def delay_for_all(self) -> timedelta:
        """The shortest delay by which no event is late."""
        return timedelta(milliseconds=-(-self.longest // _MICROS_OF_MS))

    def delay_losing(self, share: float) -> timedelta:
        """The delay by which at most this share of the events is late, rounded up."""
        allowed = int(self.events * share)
        late = 0
        for lag in sorted(self.lags, reverse=True):
            late += self.lags[lag]
            if late > allowed:
                return min(timedelta(milliseconds=lag), self.delay_for_all)
        return timedelta()


def written_delay(delay: timedelta) -> timedelta:
    """Round a delay up to one that people write, at least a minute."""
    milliseconds = delay // timedelta(milliseconds=1)
    for minutes in _STEPS:
        if milliseconds <= minutes * _MINUTE_MS:
            return timedelta(minutes=minutes)
    return timedelta(days=-(-milliseconds // _DAY_MS))


def _milliseconds(lags: I64Array) -> I64Array:
    """Return microseconds as milliseconds, rounded up to three digits."""
    milliseconds = -(-lags // _MICROS_OF_MS)
    unit = np.ones_like(milliseconds)
    while (is_long := milliseconds > _EXACT_MS * unit).any():
        unit[is_long] *= 10
    return -(-milliseconds // unit) * unit
