"""A key's timers in a function's hands."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence

import pytest

from tallyweir.sinks.postgres.outputs.key_text import (
    ENTRY_BYTES_MIN,
    KEY_BYTES_MAX,
    EntryTooLongError,
    format_key,
    parse_key,
    shard_of,
)
from tallyweir.spark_jobs.keyed.timer_handles import FiredTimer, KeyTimers, TimerChange

_NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
_KEY = "k" * KEY_BYTES_MAX


_LATER = _NOON + dt.timedelta(hours=1)
_EARLIER = _NOON - dt.timedelta(hours=1)
_THROUGH = {"event": _NOON, "processing": _NOON}


def _timers(*names: str, clock: str = "event") -> KeyTimers:
    due = [FiredTimer(name=name, at=_NOON, clock=clock) for name in names]
    return KeyTimers(due, key=_KEY, now=_NOON, through=_THROUGH)


def _set(timers: KeyTimers, clock: str, name: str, at: dt.datetime) -> None:
    if clock == "event":
        timers.set_event_time(name, at)
    else:
        timers.set_processing_time(name, at)


def _left(timers: KeyTimers) -> dict[str, dt.datetime | None]:
    return {change.name: change.fires_at for change in timers.changes()}


def test_a_fired_timer_is_gone() -> None:
    """Firing once in effect is one deleted row, whether or not it is looked at."""
    timers = _timers("a", "b")
    assert [
        TimerChange(name="a", clock="event", fires_at=None),
        TimerChange(name="b", clock="event", fires_at=None),
    ] == timers.changes()


@pytest.mark.parametrize("was", ["event", "processing"])
@pytest.mark.parametrize("clock", ["event", "processing"])
@pytest.mark.parametrize("at", [_EARLIER, _NOON, _LATER])
def test_a_due_timer_that_is_set_again_fires_once(
    was: str, clock: str, at: dt.datetime
) -> None:
    """In this call for a moment that is due as well, else at the new moment only."""
    timers = _timers("a", clock=was)
    _set(timers, clock, "a", at)
    shown = [(one.name, one.at, one.clock) for one in timers.fired]
    if at <= _NOON:
        assert ([("a", at, clock)], {"a": None}) == (shown, _left(timers))
    else:
        assert ([], {"a": at}) == (shown, _left(timers))


def test_the_last_of_several_moments_counts_for_a_due_timer() -> None:
    """Also where an earlier one had taken it away, so that it waits for the next."""
    timers = _timers("a", "b")
    timers.set_event_time("a", _NOON)
    timers.set_event_time("a", _LATER)
    timers.set_event_time("b", _LATER)
    timers.set_event_time("b", _EARLIER)
    assert ([], {"a": _LATER, "b": _EARLIER}) == (list(timers.fired), _left(timers))


def test_a_due_timer_that_is_cancelled_does_not_fire() -> None:
    """Nor is it kept."""
    timers = _timers("a", "b")
    timers.cancel("a")
    assert ["b"] == [timer.name for timer in timers.fired]
    assert {"a": None, "b": None} == _left(timers)


@pytest.mark.parametrize("at", [_EARLIER, _NOON, _LATER])
@pytest.mark.parametrize("look", [list, len, lambda fired: fired[0]])
def test_a_timer_that_is_set_after_it_has_fired_fires_anew(
    at: dt.datetime, look: Callable[[Sequence[FiredTimer]], object]
) -> None:
    """As a function sets one again when it fires: for a moment in the past too."""
    timers = _timers("a")
    look(timers.fired)
    timers.set_event_time("a", at)
    assert ([], {"a": at}) == (list(timers.fired), _left(timers))


def test_what_is_done_for_one_fired_timer_replaces_those_behind_it() -> None:
    """They are shown one after the other, by their times."""
    due = [
        FiredTimer(name="second", at=_NOON, clock="event"),
        FiredTimer(name="first", at=_EARLIER, clock="event"),
        FiredTimer(name="third", at=_NOON, clock="processing"),
    ]
    timers = KeyTimers(due, key=_KEY, now=_NOON, through=_THROUGH)
    shown = []
    for timer in timers.fired:
        shown.append(timer.name)
        timers.set_event_time("second", _LATER)
        timers.set_event_time("third", _EARLIER)
    assert ["first"] == shown
    # The moment of the third is past: it fires in the next batch or tick.
    assert {"first": None, "second": _LATER, "third": _EARLIER} == _left(timers)


def test_timers_of_the_clock_wait_in_a_tick_that_closes() -> None:
    """Through no moment of the clock, so none that is set again is due."""
    due = [FiredTimer(name="a", at=_NOON, clock="event")]
    through = {"event": _NOON, "processing": None}
    timers = KeyTimers(due, key=_KEY, now=_NOON, through=through)
    timers.set_processing_time("a", _EARLIER)
    assert ([], {"a": _EARLIER}) == (list(timers.fired), _left(timers))


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
    older = KeyTimers((), key=_KEY * 5, now=_NOON, through=_THROUGH)
    older.set_event_time("x" * ENTRY_BYTES_MIN, _NOON)


@pytest.mark.parametrize("key", [("a",), ("a", 1, None, True), ('"', "\\"), ("",)])
def test_keys_travel_as_text(key: tuple[object, ...]) -> None:
    """Each in one spelling, which tells text from numbers."""
    assert key == parse_key(format_key(key))
    assert format_key(("1",)) != format_key((1,))


def test_a_keys_shard_is_the_same_for_ever() -> None:
    """Timers are filed by it, so this number is part of what databases hold."""
    assert (4, 15) == (shard_of('["press-7"]', 16), shard_of('["s1"]', 16))
