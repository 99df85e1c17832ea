"""The wall clock of a time zone, for arrays of instants.

Instants are microseconds since 1970 UTC. Local times are microseconds since
1970-01-01 00:00 on that clock, which shows some times twice and skips others.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

I64Array = npt.NDArray[np.int64]

#: Zones change their offset only at multiples of this.
_QUARTER_US = 900_000_000
_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - a clock on a wall has no zone


class LocalClock:
    """Converts between instants and one zone's clock; each value is looked up once."""

    def __init__(self, time_zone: str) -> None:
        self._zone = ZoneInfo(time_zone)

    def read(self, instants_us: I64Array) -> I64Array:
        """Return the local time at each instant."""
        quarters = np.floor_divide(instants_us, _QUARTER_US)
        return instants_us + _of_each(quarters, self._offset_us)

    def first_instants(self, local_us: I64Array) -> I64Array:
        """Return the first instant at which the clock shows this time, or a later one.

        A skipped time is reached when the clock is put forward. If the clock shows a
        time twice, the first instant counts.
        """
        return _of_each(local_us, self._first_instant)

    def _offset_us(self, quarter: int) -> int:
        return self._offset_at(quarter * _QUARTER_US)

    def _offset_at(self, instant_us: int) -> int:
        moment = (_EPOCH + instant_us * _MICROSECOND).astimezone(self._zone)
        offset = moment.utcoffset()
        assert offset is not None, "a zone always has an offset"
        return offset // _MICROSECOND

    def _first_instant(self, local_us: int) -> int:
        local = (_LOCAL_EPOCH + local_us * _MICROSECOND).replace(tzinfo=self._zone)
        instant_us = (local.astimezone(UTC) - _EPOCH) // _MICROSECOND
        if instant_us + self._offset_at(instant_us) == local_us:
            return instant_us
        # The clock skipped this time: search for the moment when it was put forward.
        before_us = (local.replace(fold=1).astimezone(UTC) - _EPOCH) // _MICROSECOND
        while instant_us - before_us > 1:
            middle_us = (before_us + instant_us) // 2
            if middle_us + self._offset_at(middle_us) < local_us:
                before_us = middle_us
            else:
                instant_us = middle_us
        return instant_us


@lru_cache(maxsize=16)
def local_clock(time_zone: str) -> LocalClock:
    """Return the clock of a zone; reading the zone's file takes a while."""
    return LocalClock(time_zone)


def _of_each(values: I64Array, function: Callable[[int], int]) -> I64Array:
    distinct, places = np.unique(values, return_inverse=True)
    answers = np.array([function(one) for one in distinct.tolist()], dtype=np.int64)
    return answers[places]
