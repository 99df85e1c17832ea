"""Windows: merged partials against one plain SQL aggregation, and panes."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from integration_tests.harness.postgres_driver import (
    SECOND_US,
    PostgresDriver,
    Row,
    append_table,
    execute,
    layout_of,
    query,
)
from tallyweir.sinks.postgres.outputs.window_aggregates import (
    AggregateFunction,
    WindowAggregate,
)
from tallyweir.sinks.postgres.outputs.window_columns import LatePolicy, fixed_windows
from tallyweir.sinks.postgres.outputs.window_table import WindowTable
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.postgres.server.naming import state_table
from tallyweir.sinks.protocol.decisions import PublishOutcome
from tallyweir.sinks.protocol.errors import ConfigurationError, RetryableError
from tallyweir.spark_jobs.task.window_partials import from_ordered, to_ordered

_START = datetime(2026, 3, 1, tzinfo=UTC)
_SIZE_S = 10
_LATENESS_S = 20

#: Name, function, type of the result, type of the partial.
_AGGREGATES = (
    ("events", "count", "bigint", "bigint"),
    ("valued", "count", "bigint", "bigint"),
    ("whole_sum", "sum", "bigint", "bigint"),
    ("exact_sum", "sum", "numeric", "numeric"),
    ("whole_mean", "avg", "double precision", "bigint"),
    ("exact_mean", "avg", "numeric", "numeric"),
    ("lowest", "min", "bigint", "bigint"),
    ("highest", "max", "bigint", "bigint"),
    ("first_word", "min", "text", "text"),
    ("last_word", "max", "text", "text"),
)

#: The same as one aggregation over all events; text is compared by bytes. Postgres'
#: own avg(bigint) is a numeric of 16 digits, and a double made of that is rounded
#: twice: -23/9 ends in ...556 instead of ...5554.
_PLAIN = """
SELECT to_timestamp(floor(extract(epoch FROM at) / 10) * 10), origin, count(*),
       count(whole), sum(whole)::bigint, sum(exact),
       sum(whole)::double precision / nullif(count(whole), 0), avg(exact),
       min(whole), max(whole), min(word COLLATE "C"), max(word COLLATE "C")
FROM events GROUP BY 1, 2 ORDER BY 1, 2 NULLS FIRST
"""
_MERGED = (
    "SELECT window_start, origin, "
    + ", ".join(name for name, *_ in _AGGREGATES)
    + " FROM by_origin ORDER BY 1, 2 NULLS FIRST"
)


_METRICS = (
    'SELECT metric_name, value, dimensions FROM metrics ORDER BY "timestamp", '
    "metric_name, dimensions"
)
_OTHER_METRICS = (
    "SELECT now() AS timestamp, 'by hand' AS metric_name, 1::numeric AS value, "
    "'{}'::jsonb AS dimensions, now() AS window_start"
)

_DEVIATION = WindowAggregate(
    column=Column(name="deviation", postgres_type="double precision"),
    function=AggregateFunction.STDDEV,
    number=0,
    partial_type="double precision",
)


def _window_table(
    *, by: Sequence[str] = ("origin",), late: LatePolicy = LatePolicy.REVISE
) -> WindowTable:
    return WindowTable(
        table="by_origin",
        staging_table="output_1",
        windows=fixed_windows(_SIZE_S * SECOND_US),
        by=tuple(Column(name=name, postgres_type="text") for name in by),
        aggregates=tuple(
            WindowAggregate(
                column=Column(name=name, postgres_type=kind),
                function=AggregateFunction(function),
                number=number,
                partial_type=partial_type,
            )
            for number, (name, function, kind, partial_type) in enumerate(_AGGREGATES)
        ),
        allowed_lateness_us=_LATENESS_S * SECOND_US,
        late=late,
    )


_EVENTS = append_table(
    "events",
    at="timestamp with time zone",
    origin="text",
    whole="bigint",
    exact="numeric",
    word="text",
)


def _partials(event: Row) -> Row:
    """Return what a task stages for a group that holds this event only."""
    at, origin, whole, exact, word = event
    start = at - (at - _START) % timedelta(seconds=_SIZE_S)
    whole_sum = (whole or 0, int(whole is not None))
    exact_sum = (exact or Decimal(0), int(exact is not None))
    counts = (1, 1, int(whole is not None))
    sums = (*whole_sum, *exact_sum, *whole_sum, *exact_sum)
    end = start + timedelta(seconds=_SIZE_S)
    return (start, end, origin, *counts, *sums, whole, whole, word, word)


def _publish(
    driver: PostgresDriver,
    events: Sequence[Row],
    *,
    revised: int = 0,
    settles: bool = True,
) -> PublishOutcome:
    plan = driver.plan(len(events))
    tally = driver.stage(
        plan,
        {
            "output_0": driver.positioned(plan, events),
            "output_1": [_partials(event) for event in events],
        },
        # Without a time the watermark stays, and every window open.
        event_time_max_us=max(
            (int(event[0].timestamp() * SECOND_US) for event in events if settles),
            default=None,
        ),
        revised=revised,
    )
    return driver.publish(plan, tally)


def _event(second: int, whole: int | None = 1, origin: str | None = "JFK") -> Row:
    return (_START + timedelta(seconds=second), origin, whole, None, None)


def test_merged_partials_equal_one_aggregation_over_all_events(home_dsn: str) -> None:
    """Whatever falls into which batch, the windows hold what plain SQL computes."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed={seed}")  # noqa: T201 - a failure must tell it
    chance = random.Random(seed)
    driver = PostgresDriver(
        dsn=home_dsn, layout=layout_of(_EVENTS, _window_table(late=LatePolicy.DROP))
    )
    words = ["a", "B", "b", "ä", "Z", "", "10", "9", None]
    for batch in range(12):
        events = [
            (
                # One group has NULL values only, from all batches.
                _START + timedelta(seconds=chance.randrange(60), microseconds=batch),
                chance.choice(["JFK", "lga", "EWR", None]),
                chance.choice([None, -7, -1, 0, 3, 10**15]),
                chance.choice([None, Decimal("-0.000001"), Decimal("12345678901.25")]),
                chance.choice(words),
            )
            for _ in range(chance.randrange(25))
        ]
        nothing = (_START + timedelta(seconds=70), "void", None, None, None)
        assert PublishOutcome.COMMITTED is _publish(
            driver, [*events, nothing], settles=False
        )
    plain = query(home_dsn, _PLAIN)
    assert plain == query(home_dsn, _MERGED)
    assert (12, 0, *[None] * 8) == plain[-1][2:]
    assert any(origin is None for _, origin, *_ in plain)


def test_a_window_passes_through_its_panes_and_keeps_former_values(
    home_dsn: str,
) -> None:
    """Early, on time, late within the lateness, then final, and its state is gone."""
    driver = PostgresDriver(dsn=home_dsn, layout=layout_of(_EVENTS, _window_table()))
    panes = (
        "SELECT extract(epoch FROM window_start - '2026-03-01Z')::int, events, pane, "
        "final FROM by_origin ORDER BY 1"
    )
    revisions = (
        "SELECT extract(epoch FROM window_start - '2026-03-01Z')::int, events, pane, "
        "final, revised_in_sequence FROM by_origin_revisions ORDER BY 5, 1"
    )
    _publish(driver, [_event(3)])
    assert [(0, 1, "early", False)] == query(home_dsn, panes)

    _publish(driver, [_event(4)])
    assert [(0, 2, "early", False)] == query(home_dsn, panes)

    _publish(driver, [_event(10)])
    assert [(0, 2, "on_time", False), (10, 1, "early", False)] == query(home_dsn, panes)
    assert [] == query(home_dsn, revisions)

    _publish(driver, [_event(5), _event(11)], revised=1)
    assert [(0, 3, "late", False), (10, 2, "early", False)] == query(home_dsn, panes)
    assert [(0, 2, "on_time", False, 4)] == query(home_dsn, revisions)

    _publish(driver, [_event(6), _event(29)], revised=1)
    assert [
        (0, 4, "late", False),
        (10, 2, "on_time", False),
        (20, 1, "early", False),
    ] == (query(home_dsn, panes))
    assert [(0, 2, "on_time", False, 4), (0, 3, "late", False, 5)] == (
        query(home_dsn, revisions)
    )

    _publish(driver, [_event(30)])
    assert [(0, 4, "late", True), (10, 2, "on_time", False)] == query(home_dsn, panes)[
        :2
    ]
    state = state_table(driver.home.claim.pipeline_number, "by_origin").as_string(None)
    open_windows = f"SELECT DISTINCT window_start FROM {state} ORDER BY 1"
    assert [10, 20, 30] == [
        (start - _START).seconds for (start,) in query(home_dsn, open_windows)
    ]

    # A late event may also make a group of a window that had passed without it.
    _publish(driver, [_event(12, origin="LGA")], revised=1)
    assert ("late", False) == query(
        home_dsn, "SELECT pane, final FROM by_origin WHERE origin = 'LGA'"
    )[0]
    assert 2 == len(query(home_dsn, revisions))


def test_metrics_are_a_view_of_the_windows(home_dsn: str) -> None:
    """A row for each aggregate that is a number; a changed output changes the view."""
    output = replace(_window_table(), metrics="metrics")
    driver = PostgresDriver(dsn=home_dsn, layout=layout_of(_EVENTS, output))
    _publish(driver, [_event(3), _event(4, origin="LGA")])
    found = query(home_dsn, _METRICS)
    assert ("events", Decimal(1), {"origin": "JFK"}) in found
    assert ("events", Decimal(1), {"origin": "LGA"}) in found
    numbers = {name for name, _, kind, _ in _AGGREGATES if kind != "text"}
    assert numbers == {name for name, *_ in found}
    window = 'SELECT DISTINCT window_start, "timestamp" FROM metrics'
    shown = "SELECT DISTINCT window_start, window_end FROM by_origin"
    assert query(home_dsn, shown) == query(home_dsn, window)

    execute(home_dsn, "CREATE OR REPLACE VIEW public.metrics AS " + _OTHER_METRICS)
    PostgresDriver(dsn=home_dsn, layout=driver.layout)
    # Its comment says that it is ours, so it is not ours to change.
    assert [("by hand", Decimal(1), {})] == query(home_dsn, _METRICS)
    execute(home_dsn, "COMMENT ON VIEW public.metrics IS 'of a former output'")
    PostgresDriver(dsn=home_dsn, layout=driver.layout)
    assert found == query(home_dsn, _METRICS)


def test_metrics_of_an_earlier_release_are_made_again(home_dsn: str) -> None:
    """They had no start of the window, and its start as their timestamp."""
    former = _OTHER_METRICS.removesuffix(", now() AS window_start")
    execute(home_dsn, f"CREATE VIEW public.metrics AS {former}")
    output = replace(_window_table(), metrics="metrics")
    PostgresDriver(dsn=home_dsn, layout=layout_of(_EVENTS, output))
    assert [] == query(home_dsn, "SELECT window_start FROM metrics")


@pytest.mark.parametrize(
    "taken",
    [
        "CREATE TABLE public.metrics (n int)",
        "CREATE VIEW public.metrics AS SELECT 1 AS n",
    ],
)
def test_metrics_take_nothing_elses_place(home_dsn: str, taken: str) -> None:
    """Neither a table's nor that of a view with other columns."""
    execute(home_dsn, taken)
    output = replace(_window_table(), metrics="metrics")
    with pytest.raises(ConfigurationError, match="TABLE_DIFFERS"):
        PostgresDriver(dsn=home_dsn, layout=layout_of(_EVENTS, output))


def test_metrics_without_a_number_are_refused(home_dsn: str) -> None:
    """There would be no row, ever."""
    words = tuple(
        aggregate
        for aggregate in _window_table().aggregates
        if aggregate.column.postgres_type == "text"
    )
    output = replace(_window_table(), aggregates=words, metrics="metrics")
    with pytest.raises(ConfigurationError, match="METRICS_EMPTY"):
        PostgresDriver(dsn=home_dsn, layout=layout_of(_EVENTS, output))


def test_a_refused_publish_leaves_windows_and_state_as_they_were(
    home_dsn: str,
) -> None:
    """Partials are merged once, by the publish that commits."""
    driver = PostgresDriver(dsn=home_dsn, layout=layout_of(_EVENTS, _window_table()))
    _publish(driver, [_event(1, whole=5)])
    plan = driver.plan(1)
    staged = {
        "output_0": driver.positioned(plan, [_event(2, whole=7)]),
        "output_1": [_partials(_event(2, whole=7))],
    }
    tally = driver.stage(plan, staged)
    # The same attempt stages once more: one row too many for what it voted.
    driver.stage_rows("output_1", staged["output_1"], attempt=driver.attempts)
    with pytest.raises(RetryableError) as raised:
        driver.publish(plan, tally)
    assert "STAGED_ROWS_MISSING" == raised.value.code
    assert [(1, 5)] == query(home_dsn, "SELECT events, whole_sum FROM by_origin")

    assert PublishOutcome.COMMITTED is driver.publish(plan, driver.stage(plan, staged))
    assert [(2, 12)] == query(home_dsn, "SELECT events, whole_sum FROM by_origin")


def _moments(values: Sequence[float]) -> Row:
    """Return what a task stages for the deviation of some values."""
    mean = statistics.fmean(values) if values else 0.0
    squares = math.fsum((value - mean) ** 2 for value in values)
    end = _START + timedelta(seconds=_SIZE_S)
    return (_START, end, None, len(values), len(values), mean, squares)


def _deviation_of(
    home_dsn: str, batches: Sequence[Sequence[Sequence[float]]]
) -> object:
    """Publish batches of tasks' values; return the deviation of all."""
    output = replace(_window_table(), aggregates=(_DEVIATION,))
    driver = PostgresDriver(dsn=home_dsn, layout=layout_of(_EVENTS, output))
    for tasks in batches:
        plan = driver.plan(1)
        staged = {
            "output_0": driver.positioned(plan, [_event(1)]),
            "output_1": [_moments(values) for values in tasks],
        }
        driver.publish(plan, driver.stage(plan, staged))
    ((deviation,),) = query(home_dsn, "SELECT deviation FROM by_origin")
    return deviation


def test_a_deviation_merges_without_losing_digits_to_a_large_mean(
    home_dsn: str,
) -> None:
    """Sums of squares would leave nothing of a deviation that is small beside it."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed={seed}")  # noqa: T201 - a failure must tell it
    chance = random.Random(seed)
    batches = [
        [[1e9 + chance.random() for _ in range(chance.randrange(4))] for _ in range(3)]
        for _ in range(8)
    ]
    values = [value for tasks in batches for task in tasks for value in task]
    found = _deviation_of(home_dsn, batches)
    assert pytest.approx(statistics.stdev(values), rel=1e-6) == found


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        ([[[], []], [[]]], None),
        ([[[7.0]], [[]]], None),
        ([[[7.0]], [[], [9.0]]], math.sqrt(2)),
        ([[[1e130, -1e130]], [[1e130], [-1e130]]], 1e130 * math.sqrt(4 / 3)),
        ([[[1e-130]], [[2e-130], [1e-130]]], 1e-130 / math.sqrt(3)),
        # As far apart as the last digit tells: Postgres cannot square this.
        ([[[1e-130]], [[1e-130 * (1 + 2**-52)]]], 0.0),
        ([[[math.nan]], [[1.0]], [[2.0], [3.0]]], math.nan),
    ],
)
def test_a_deviation_of_extreme_values_is_published(
    home_dsn: str,
    batches: Sequence[Sequence[Sequence[float]]],
    expected: float | None,
) -> None:
    """NULL below two values; and what tasks stage never fails in Postgres."""
    found = _deviation_of(home_dsn, batches)
    if expected is None:
        assert found is None
    else:
        assert pytest.approx(expected, rel=1e-6, abs=0, nan_ok=True) == found


def test_tasks_order_floating_point_as_postgres_does(home_dsn: str) -> None:
    """Its greatest value is NaN, and its least is minus infinity."""
    numbers = [math.nan, 2.5, math.inf, -math.inf, -1e300, 0.0, -5e-324, 5e-324]
    ordered = query(
        home_dsn, "SELECT n FROM unnest(%s::float8[]) AS n ORDER BY n", numbers
    )
    asked = pa.chunked_array([numbers])
    keys = to_ordered(asked)
    by_tasks = from_ordered(pa.chunked_array([keys.sort()]), asked.type)
    assert repr([number for (number,) in ordered]) == repr(by_tasks.to_pylist())
