"""Joins, against a model that sees all events at once."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallyweir.schemas.pipeline import Join, JoinSide, Unmatched, Within
from tallyweir.sinks.postgres.server.instants import to_datetime
from tallyweir.spark_jobs.keyed.joined_events import as_stateful
from tallyweir.spark_jobs.keyed.key_task import JsonText
from tallyweir.spark_jobs.keyed.state_handles import KeyState, StateVersion
from tallyweir.spark_jobs.keyed.tests.test_state_handles import _Table
from tallyweir.spark_jobs.keyed.timer_handles import KeyTimers

_NOON_US = 1_714_564_800_000_000
_SECOND_US = 1_000_000
_BEFORE_S, _AFTER_S = 3, 7
_BOUNDS = Within(
    before=dt.timedelta(seconds=_BEFORE_S), after=dt.timedelta(seconds=_AFTER_S)
)
_TYPES = {"n": "bigint"}


class _Event(NamedTuple):
    """Which it is, its second, and the sides that it is on."""

    number: int
    second: int
    is_left: bool
    is_right: bool


_EVENTS = st.lists(
    st.tuples(st.integers(0, 40), st.sampled_from([(1, 0), (0, 1), (1, 1), (0, 0)])),
    max_size=16,
).map(
    lambda drawn: [
        _Event(number, second, bool(left), bool(right))
        for number, (second, (left, right)) in enumerate(drawn)
    ]
)
_UNMATCHED = st.sampled_from(Unmatched)
Row = tuple[int | None, int | None]


def _join(unmatched: Unmatched) -> Join:
    return Join(
        table="pairs",
        on=("k",),
        within=_BOUNDS,
        left=JoinSide(where="is_left", select={"left_n": "n"}),
        right=JoinSide(where="is_right", select={"right_n": "n"}),
        unmatched=unmatched,
    )


def _at(second: int) -> dt.datetime:
    return to_datetime(_NOON_US + second * _SECOND_US)


class _Driver:
    """Hands batches to a join's function, and keeps its state and timer."""

    def __init__(self, output: Join, key: tuple[Any, ...] = ("a",)) -> None:
        self.stateful = as_stateful(output, 0, "at", _TYPES)
        self.key = key
        self.table = _Table()
        self.timer: dt.datetime | None = None
        self._sequence = 0

    def run(self, events: Sequence[_Event], watermark: dt.datetime | None) -> list[Row]:
        """Return the rows of a batch; it is called as phase 2b would call it."""
        is_due = self.timer and watermark and self.timer <= watermark
        if not events and not is_due:
            return []
        self._sequence += 1
        version = StateVersion(number=1, migrate=None)
        state = KeyState(
            "k", self.stateful.state, self.table, version, sequence=self._sequence
        )
        timers = KeyTimers((), key="k", now=_at(0), through={})
        ordered = sorted(events, key=lambda event: (event.second, event.number))
        given_events = pa.table(
            {
                "at": pa.array(
                    [_at(e.second) for e in ordered], pa.timestamp("us", "UTC")
                ),
                "tallyweir_j0_left": pa.array([e.is_left for e in ordered], pa.bool_()),
                "tallyweir_j0_right": pa.array(
                    [e.is_right for e in ordered], pa.bool_()
                ),
                "n": pa.array([e.number for e in ordered], pa.int64()),
                "kafka_topic": pa.array(["t"] * len(ordered), pa.string()),
                "kafka_partition": pa.array([0] * len(ordered), pa.int32()),
                "kafka_offset": pa.array([e.number for e in ordered], pa.int64()),
            }
        )
        rows = list(
            self.stateful.function(self.key, given_events, state, timers, watermark)
            or ()
        )
        self.table.apply(state.changes(), version=1)
        (timer,) = timers.changes()
        self.timer = timer.fires_at
        assert bool(self.table.rows) == (self.timer is not None), "one with the other"
        return [(row.get("left_n"), row.get("right_n")) for row in rows]


def _expected(events: Sequence[_Event], unmatched: Unmatched) -> Counter[Row]:
    pairs = [
        (left.number, right.number)
        for left in events
        for right in events
        if left.is_left and right.is_right and left.number != right.number
        if -_BEFORE_S <= right.second - left.second <= _AFTER_S
    ]
    rows: list[Row] = list(pairs)
    if unmatched in {Unmatched.LEFT, Unmatched.BOTH}:
        matched = {left for left, _ in pairs}
        rows += [
            (e.number, None) for e in events if e.is_left and e.number not in matched
        ]
    if unmatched in {Unmatched.RIGHT, Unmatched.BOTH}:
        matched = {right for _, right in pairs}
        rows += [
            (None, e.number) for e in events if e.is_right and e.number not in matched
        ]
    return Counter(rows)


@settings(max_examples=60)
@given(
    events=_EVENTS,
    cuts=st.sets(st.integers(1, 15), max_size=6),
    delay=st.integers(0, 10),
    shuffles=st.randoms(use_true_random=False),
    unmatched=_UNMATCHED,
)
def test_events_in_time_give_the_model_s_rows_in_any_order_and_batches(
    events: list[_Event],
    cuts: set[int],
    delay: int,
    shuffles: random.Random,
    unmatched: Unmatched,
) -> None:
    """Whoever is not late is in every pair of the model, once, and in no other."""
    # An order in which nobody is late: each at most the delay behind the newest.
    arrivals = sorted(events, key=lambda e: e.second + shuffles.uniform(0, delay))
    driver = _Driver(_join(unmatched))
    found: Counter[Row] = Counter()
    newest: int | None = None
    for first, last in pairwise([0, *sorted(c for c in cuts if c < len(events)), None]):
        batch = arrivals[first:last]
        newest = (
            max([e.second for e in batch], default=newest)
            if newest is None
            else max([newest, *(e.second for e in batch)])
        )
        watermark = None if newest is None else _at(newest - delay)
        found.update(driver.run(batch, watermark))
    found.update(driver.run([], _at(1_000)))
    assert _expected(events, unmatched) == found
    assert not driver.table.rows, "nobody waits for ever"


@settings(max_examples=60)
@given(
    batches=st.lists(_EVENTS, max_size=5),
    watermarks=st.lists(st.integers(0, 50), min_size=5),
)
def test_late_events_make_no_pair_twice_and_no_row_beside_a_pair(
    batches: list[list[_Event]], watermarks: list[int]
) -> None:
    """They are paired with what still waits, and what has left stays alone."""
    driver = _Driver(_join(Unmatched.BOTH))
    found: Counter[Row] = Counter()
    everybody: list[_Event] = []
    for batch, watermark in zip(batches, sorted(watermarks), strict=False):
        fresh = [e._replace(number=len(everybody) + n) for n, e in enumerate(batch)]
        everybody += fresh
        found.update(driver.run(fresh, _at(watermark)))
    found.update(driver.run([], _at(1_000)))
    assert set(found.values()) <= {1}
    pairs = {row for row in found if None not in row}
    assert pairs <= set(_expected(everybody, Unmatched.NONE))
    alone = [row for row in found if None in row]
    for event in everybody:
        for side, is_on in enumerate((event.is_left, event.is_right)):
            partners = [row for row in pairs if row[side] == event.number]
            own = [row for row in alone if row[side] == event.number]
            assert len(own) == int(is_on and not partners)


def test_a_partner_at_the_very_end_of_the_bound_is_in_time() -> None:
    """The watermark may have come to it: an event of that very time is not late."""
    driver = _Driver(_join(Unmatched.LEFT))
    left = _Event(0, 0, is_left=True, is_right=False)
    right = _Event(1, _AFTER_S, is_left=False, is_right=True)
    assert [] == driver.run([left], _at(_AFTER_S))
    assert driver.timer is not None
    assert driver.timer > _at(_AFTER_S), "or it would fire at every tick for nothing"
    assert [(0, 1)] == driver.run([right], _at(_AFTER_S))


def test_without_a_watermark_everybody_waits() -> None:
    """Nothing is known of who may still come."""
    driver = _Driver(_join(Unmatched.BOTH))
    assert [] == driver.run([_Event(0, 0, is_left=True, is_right=False)], None)
    assert driver.table.rows


def test_null_is_equal_to_nothing() -> None:
    """Such events have their own rows at once, and keep no place."""
    events = [
        _Event(0, 0, is_left=True, is_right=False),
        _Event(1, 0, is_left=False, is_right=True),
    ]
    driver = _Driver(_join(Unmatched.BOTH), key=("a", None))
    assert [(0, None), (None, 1)] == driver.run(events, None)
    assert not driver.table.rows


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("bigint", -(2**63)),
        ("boolean", False),
        ("bytea", b"\x00\xff"),
        ("date", dt.date(2024, 2, 29)),
        ("double precision", 0.1 + 0.2),
        ("double precision", math.inf),
        ("double precision", math.nan),
        ("jsonb", '{"sum": 12345678901234567890.10}'),
        ("numeric", Decimal("12345678901234567890.10")),
        ("real", 1.5),
        ("text", "naïve \U0001f600"),
        ("timestamp with time zone", _at(0) + dt.timedelta(microseconds=1)),
        ("timestamp without time zone", dt.datetime(2024, 5, 1, 12)),  # noqa: DTZ001
        ("text", None),
    ],
)
def test_a_value_is_the_same_after_it_has_waited(kind: str, value: object) -> None:
    """Of whatever type a column may be."""
    output = Join(
        table="pairs",
        on=("k",),
        within=dt.timedelta(),
        left=JoinSide(where="x", select={"of_left": "v"}),
        right=JoinSide(where="y", select={"of_right": "v"}),
    )
    stateful = as_stateful(output, 3, "at", {"v": kind})
    table = _Table()
    rows: list[Any] = []
    for number, side in enumerate(("left", "right")):
        state = KeyState(
            "k",
            stateful.state,
            table,
            StateVersion(number=1, migrate=None),
            sequence=number,
        )
        event = {
            "at": [_at(0)],
            "v": [value],
            "tallyweir_j3_left": [side == "left"],
            "tallyweir_j3_right": [side == "right"],
            "kafka_topic": ["t"],
            "kafka_partition": [0],
            "kafka_offset": [number],
        }
        timers = KeyTimers((), key="k", now=_at(0), through={})
        rows += stateful.function(("a",), pa.table(event), state, timers, None) or ()
        table.apply(state.changes(), version=1)
    (row,) = rows
    assert repr(row["of_left"]) == repr(row["of_right"])
    assert repr(value) in {repr(row["of_left"]), repr(JsonText(row["of_left"]))}
    assert isinstance(row["of_left"], JsonText) == (kind == "jsonb")
