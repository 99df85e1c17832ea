"""Closed sessions, against a model, whatever the batches."""

from __future__ import annotations

import datetime as dt
from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tallyweir.schemas.pipeline import each_session
from tallyweir.spark_jobs.keyed.state_handles import KeyState, StateVersion
from tallyweir.spark_jobs.keyed.tests.test_state_handles import _Table
from tallyweir.spark_jobs.keyed.timer_handles import KeyTimers

_NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
_GAP_S = 10


def _at(second: int) -> dt.datetime:
    return _NOON + dt.timedelta(seconds=second)


@each_session(
    table="sessions",
    key=["user"],
    columns={"events": "jsonb"},
    event_time="at",
    gap=dt.timedelta(seconds=_GAP_S),
    select=["page"],
)
def _sessions(key: tuple[Any, ...], events: list[dict[str, Any]]) -> Any:  # noqa: ANN401
    assert ("u",) == key
    yield {"events": [(event["at"], event["page"]) for event in events]}


def _run(batches: list[list[int]]) -> list[list[int]]:
    """Run seconds through the function; the watermark is the newest, then far ahead."""
    table = _Table()
    found = []
    newest = 0
    for sequence, seconds in enumerate([*batches, []], start=1):
        newest = max([newest, *seconds]) if seconds else 10**6
        state = KeyState(
            "k",
            _sessions.state,
            table,
            StateVersion(number=1, migrate=None),
            sequence=sequence,
        )
        timers = KeyTimers((), key="k", now=_NOON, through={})
        events = pa.table(
            {
                "at": pa.array([_at(s) for s in seconds], pa.timestamp("us", "UTC")),
                "page": pa.array([f"p{s}" for s in seconds], pa.string()),
                "kafka_offset": pa.array(seconds, pa.int64()),
            }
        )
        rows = _sessions.function(("u",), events, state, timers, _at(newest))
        for row in rows or ():
            times = [(at - _NOON).seconds for at, _ in row["events"]]
            assert [f"p{second}" for second in times] == [p for _, p in row["events"]]
            found.append(times)
        table.apply(state.changes(), version=1)
        waits = [change.fires_at for change in timers.changes()]
        assert bool(table.rows) == any(waits), "open sessions have their timer"
    return found


@given(
    seconds=st.lists(st.integers(0, 300), max_size=20),
    cuts=st.sets(st.integers(1, 19), max_size=5),
)
def test_events_in_order_give_the_same_sessions_in_any_batches(
    seconds: list[int], cuts: set[int]
) -> None:
    """Each event is in one session; neighbours within the gap are in the same."""
    seconds.sort()
    edges = [0, *sorted(cuts), len(seconds)]
    found = _run([seconds[first:last] for first, last in pairwise(edges)])
    expected: list[list[int]] = []
    for second in seconds:
        if expected and second - expected[-1][-1] < _GAP_S:
            expected[-1].append(second)
        else:
            expected.append([second])
    assert expected == found


def test_sessions_are_made_of_the_events_that_a_condition_lets_in() -> None:
    """The condition is the output's, and checked like any other."""
    wanted = each_session(
        table="sessions",
        key=["user"],
        columns={"events": "jsonb"},
        event_time="at",
        gap=dt.timedelta(seconds=_GAP_S),
        where="page <> '/health'",
    )
    assert wanted(lambda _key, _events: ()).where == "page <> '/health'"


def test_a_late_event_is_a_session_of_its_own() -> None:
    """What was handed over is not handed over again."""
    assert [[0, 5], [3], [100]] == _run([[0, 5], [100], [3]])


@given(batches=st.lists(st.lists(st.integers(0, 60), max_size=5), max_size=6))
def test_no_event_is_lost_or_doubled_in_any_order(batches: list[list[int]]) -> None:
    """However late they are."""
    found = _run(batches)
    assert sorted(s for b in batches for s in b) == sorted(s for o in found for s in o)
