"""A key's timers in a function's hands."""

from __future__ import annotations

import datetime as dt

import pytest

from sinks.postgres.key_text import (
    ENTRY_BYTES_MIN,
    KEY_BYTES_MAX,
    EntryTooLongError,
    format_key,
    parse_key,
    shard_of,
)
from spark_jobs.keyed.timer_handles import FiredTimer, KeyTimers, TimerChange

_NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
_KEY = "k" * KEY_BYTES_MAX


def _timers(*names: str) -> KeyTimers:
    fired = [FiredTimer(name=name, at=_NOON, clock="event") for name in names]
    return KeyTimers(fired, key=_KEY, now=_NOON)


def test_a_fired_timer_is_gone_unless_it_is_set_again() -> None:
    """Firing once in effect is one deleted row."""
    timers = _timers("a", "b")
    timers.set_processing_time("b", _NOON)
    assert [
        TimerChange(name="a", clock="event", fires_at=None),
        TimerChange(name="b", clock="processing", fires_at=_NOON),
    ] == timers.changes()


def test_a_timer_that_is_set_again_moves_and_one_cancelled_goes() -> None:
    """The last word counts."""
    timers = _timers()
    timers.set_event_time("a", _NOON)
    timers.set_event_time("a", _NOON + dt.timedelta(1))
    timers.set_event_time("b", _NOON)
    timers.cancel("b")
    found = {change.name: change.fires_at for change in timers.changes()}
    assert {"a": _NOON + dt.timedelta(1), "b": None} == found


def test_a_moment_needs_a_time_zone() -> None:
    """Without one it is another moment on another machine."""
    with pytest.raises(ValueError, match="time zone"):
        _timers().set_event_time("a", _NOON.replace(tzinfo=None))


def test_a_name_is_as_long_as_the_index_has_room_beside_the_key() -> None:
    """Bytes count; one more would stop the pipeline when the batch is published."""
    timers = _timers()
    timers.set_event_time("é" * (ENTRY_BYTES_MIN // 2), _NOON)
    with pytest.raises(EntryTooLongError, match="257 bytes; beside this key 256"):
        timers.set_processing_time("é" * (ENTRY_BYTES_MIN // 2) + "x", _NOON)
    assert 1 == len(timers.changes())
    # A key that was stored when there was no limit yet keeps its timers.
    older = KeyTimers((), key=_KEY * 5, now=_NOON)
    older.set_event_time("x" * ENTRY_BYTES_MIN, _NOON)


@pytest.mark.parametrize("key", [("a",), ("a", 1, None, True), ('"', "\\"), ("",)])
def test_keys_travel_as_text(key: tuple[object, ...]) -> None:
    """Each in one spelling, which tells text from numbers."""
    assert key == parse_key(format_key(key))
    assert format_key(("1",)) != format_key((1,))


def test_a_keys_shard_is_the_same_for_ever() -> None:
    """Timers are filed by it, so this number is part of what databases hold."""
    assert (4, 15) == (shard_of('["press-7"]', 16), shard_of('["s1"]', 16))
