"""Which windows each event of a task falls into, by UTC or by the clock of a time zone.

Instants are microseconds since 1970 UTC. Local times are microseconds since
1970-01-01 00:00 on that clock, which shows some times twice and skips others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from tallyweir.sinks.postgres.outputs.window_columns import (
    UTC_ZONE,
    AlignedWindows,
    SessionWindows,
    WindowKind,
)
from tallyweir.sinks.seen_ids.ordering import BoolArray, I64Array

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


_HOUR_US = 3_600_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """Windows of events: ``rows[i]`` is the event whose window i is.

    With sliding windows an event has several. An event that a change of the clock
    leaves between two windows may have none.
    """

    rows: I64Array
    starts: I64Array
    ends: I64Array

    def choose(self, chosen: BoolArray) -> Assigned:
        """Keep some of the windows."""
        return Assigned(
            rows=self.rows[chosen], starts=self.starts[chosen], ends=self.ends[chosen]
        )


def assign_windows(event_time_us: I64Array, windows: WindowKind) -> Assigned:
    """Return the windows of each event; a session lasts from it until its gap ends."""
    match windows:
        case SessionWindows():
            return Assigned(
                rows=np.arange(len(event_time_us)),
                starts=event_time_us,
                ends=event_time_us + windows.gap_us,
            )
        case AlignedWindows() if windows.time_zone == UTC_ZONE:
            return _assign_steady(event_time_us, event_time_us, windows)
        case AlignedWindows():
            local_us = local_clock(windows.time_zone).read(event_time_us)
            if windows.every_us <= _HOUR_US:
                return _assign_steady(event_time_us, local_us, windows)
            return _assign_local(event_time_us, local_us, windows)


def assign_chosen(
    event_time_us: I64Array, chosen: BoolArray, windows: WindowKind
) -> Assigned:
    """Return the windows of some events, by the numbers of these among all events."""
    places = np.flatnonzero(chosen)
    assigned = assign_windows(event_time_us[places], windows)
    return replace(assigned, rows=places[assigned.rows])


def _assign_steady(
    event_time_us: I64Array, clock_us: I64Array, windows: AlignedWindows
) -> Assigned:
    """Assign windows of constant length; the clock says where they begin."""
    newest = event_time_us - np.mod(clock_us, windows.every_us)
    parts = []
    for back in range(_windows_at_once(windows)):
        starts = newest - back * windows.every_us
        ends = starts + windows.size_us
        rows = np.flatnonzero(ends > event_time_us)
        parts.append(Assigned(rows=rows, starts=starts[rows], ends=ends[rows]))
    return _joined(parts)


def _assign_local(
    event_time_us: I64Array, local_us: I64Array, windows: AlignedWindows
) -> Assigned:
    """Assign windows from one local time to another, however long that takes.

    If the clock skips several starts at once, only the last of them counts. So two
    windows of an output never begin at the same instant.
    """
    clock = local_clock(windows.time_zone)
    newest = local_us - np.mod(local_us, windows.every_us)
    parts = []
    # When the clock is put back, an event may come after a start that is shown again.
    for back in range(-_windows_at_once(windows), _windows_at_once(windows) + 1):
        begin = newest - back * windows.every_us
        starts = clock.first_instants(begin)
        ends = clock.first_instants(begin + windows.size_us)
        following = clock.first_instants(begin + windows.every_us)
        rows = np.flatnonzero(
            (starts <= event_time_us) & (event_time_us < ends) & (starts < following)
        )
        parts.append(Assigned(rows=rows, starts=starts[rows], ends=ends[rows]))
    return _joined(parts)


def _windows_at_once(windows: AlignedWindows) -> int:
    return -(-windows.size_us // windows.every_us)


def _joined(parts: Sequence[Assigned]) -> Assigned:
    if len(parts) == 1:
        return parts[0]
    return Assigned(
        rows=np.concatenate([part.rows for part in parts]),
        starts=np.concatenate([part.starts for part in parts]),
        ends=np.concatenate([part.ends for part in parts]),
    )


def join_sessions(assigned: Assigned, keys: Sequence[pa.Array]) -> Assigned:
    """Join the overlapping windows of each group into one.

    Args:
        assigned: One window per event, from it to the end of its gap.
        keys: The columns that form the groups, a value per window; null is a value.
    """
    if not len(assigned.rows):
        return assigned
    groups = _group_numbers(keys, len(assigned.rows))
    order = np.lexsort((assigned.starts, groups))
    starts, ends, of_group = (
        assigned.starts[order],
        assigned.ends[order],
        groups[order],
    )
    begins = np.ones(len(order), dtype=np.bool_)
    # All gaps are equal, so the latest start also has the latest end.
    begins[1:] = (of_group[1:] != of_group[:-1]) | (starts[1:] >= ends[:-1])
    session = np.cumsum(begins) - 1
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(order)) - 1
    joined_starts, joined_ends = np.empty_like(starts), np.empty_like(ends)
    joined_starts[order] = starts[first][session]
    joined_ends[order] = ends[last][session]
    return Assigned(rows=assigned.rows, starts=joined_starts, ends=joined_ends)


def _group_numbers(keys: Sequence[pa.Array], length: int) -> I64Array:
    numbers = np.zeros(length, dtype=np.int64)
    for key in keys:
        codes = key.dictionary_encode(null_encoding="encode").indices
        combined = np.stack([numbers, np.asarray(codes, dtype=np.int64)])
        _, places = np.unique(combined, axis=1, return_inverse=True)
        numbers = places.reshape(-1).astype(np.int64)
    return numbers
