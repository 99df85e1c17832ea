"""Windows of a task's events, and the partials that publishing merges."""

from __future__ import annotations

import decimal
import math
import statistics
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tallyweir.sinks.postgres.outputs.sketches import sketch_of
from tallyweir.sinks.postgres.outputs.window_aggregates import (
    AggregateFunction,
    WindowAggregate,
)
from tallyweir.sinks.postgres.outputs.window_columns import LatePolicy, fixed_windows
from tallyweir.sinks.postgres.outputs.window_table import WindowTable
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.spark_jobs.source import event_columns as named
from tallyweir.spark_jobs.source.event_columns import argument_column
from tallyweir.spark_jobs.task.window_assignment import Assigned, assign_windows
from tallyweir.spark_jobs.task.window_partials import (
    aggregate_windows,
    find_late,
    find_revising,
)

_HOUR_US = 3_600_000_000
_TYPES = {
    AggregateFunction.COUNT: "bigint",
    AggregateFunction.SUM: "numeric",
    AggregateFunction.AVG: "numeric",
    AggregateFunction.MIN: "bigint",
    AggregateFunction.MAX: "bigint",
    AggregateFunction.FIRST: "bigint",
    AggregateFunction.LAST: "bigint",
    AggregateFunction.STDDEV: "double precision",
    AggregateFunction.APPROX_COUNT_DISTINCT: "bigint",
    AggregateFunction.APPROX_PERCENTILE: "double precision",
}


def _output(
    *functions: AggregateFunction,
    late: LatePolicy = LatePolicy.REVISE,
    lateness_us: int = 0,
) -> WindowTable:
    return WindowTable(
        table="w",
        staging_table="output_0",
        windows=fixed_windows(_HOUR_US),
        by=(Column(name="kind", postgres_type="text"),),
        aggregates=tuple(
            WindowAggregate(
                column=Column(name=f"a{number}", postgres_type=_TYPES[function]),
                function=function,
                number=number,
                partial_type=_TYPES[function],
                fraction=0.5
                if function is AggregateFunction.APPROX_PERCENTILE
                else None,
            )
            for number, function in enumerate(functions)
        ),
        allowed_lateness_us=lateness_us,
        late=late,
    )


@settings(deadline=None)
@given(st.lists(st.integers(-(2**61), 2**61), min_size=1), st.integers(1, 10**13))
def test_each_event_lies_in_its_half_open_window(times: list[int], size: int) -> None:
    """Windows begin at multiples of their size, before 1970 as well."""
    assigned = assign_windows(np.array(times), fixed_windows(size))
    assert list(range(len(times))) == assigned.rows.tolist()
    for start, time in zip(assigned.starts.tolist(), times, strict=True):
        assert start % size == 0
        assert start <= time < start + size


@pytest.mark.parametrize(
    ("late", "watermark_us", "is_late", "is_revising"),
    [
        (LatePolicy.REVISE, None, False, False),
        (LatePolicy.REVISE, _HOUR_US - 1, False, False),
        # An end is exclusive: at the watermark the window has passed.
        (LatePolicy.REVISE, _HOUR_US, False, True),
        (LatePolicy.REVISE, _HOUR_US + 4, False, True),
        (LatePolicy.REVISE, _HOUR_US + 5, True, True),
        (LatePolicy.SIDE_TABLE, _HOUR_US - 1, False, False),
        (LatePolicy.SIDE_TABLE, _HOUR_US, True, True),
        (LatePolicy.DROP, _HOUR_US, True, True),
    ],
)
def test_lateness_begins_where_the_watermark_has_passed(
    late: LatePolicy,
    watermark_us: int | None,
    is_late: bool,  # noqa: FBT001 - a parameter of cases
    is_revising: bool,  # noqa: FBT001
) -> None:
    """Only ``revise`` keeps a window open, for its allowed lateness."""
    output = _output(AggregateFunction.COUNT, late=late, lateness_us=5)
    ends = np.array([_HOUR_US])
    assert [is_late] == find_late(ends, output, watermark_us).tolist()
    assert [is_revising] == find_revising(ends, watermark_us).tolist()


def test_a_window_that_was_final_stays_closed_however_long_others_are_open() -> None:
    """What it held is gone, so it would begin again from nothing."""
    output = replace(
        _output(AggregateFunction.COUNT, lateness_us=100), closed_through_us=50
    )
    ends = np.array([49, 50, 51])
    assert [True, True, False] == find_late(ends, output, 60).tolist()
    assert [True, True, True] == find_late(ends, output, 151).tolist()


def _in_one_window(events: int) -> Assigned:
    return assign_windows(np.zeros(events, np.int64), fixed_windows(_HOUR_US))


def _aggregate(
    output: WindowTable, kinds: list[str | None], values: pa.Array
) -> Mapping[str | None, dict[str, object]]:
    arguments = {
        argument_column(0, aggregate.number): values for aggregate in output.aggregates
    }
    events = pa.table({"kind": pa.array(kinds, pa.string()), **arguments})
    table = aggregate_windows(events, _in_one_window(len(kinds)), output, 0)
    assert table.column_names == [column.name for column in output.staging_columns]
    return {row["kind"]: row for row in table.to_pylist()}


_VALUES = st.none() | st.integers(-(2**31), 2**31 - 1)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["x", "y", None]), _VALUES), min_size=1))
def test_partials_equal_what_python_counts(
    rows: list[tuple[str | None, int | None]],
) -> None:
    """Null is a group of its own, and no value."""
    functions = (
        AggregateFunction.COUNT,
        AggregateFunction.SUM,
        AggregateFunction.AVG,
        AggregateFunction.MIN,
        AggregateFunction.MAX,
    )
    output = _output(*functions)
    kinds = [kind for kind, _ in rows]
    values = pa.array([value for _, value in rows], pa.int32())
    found = _aggregate(output, kinds, values)
    assert set(kinds) == set(found)
    for kind, row in found.items():
        known = [v for k, v in rows if k == kind and v is not None]
        partials = list(row.values())[3:]
        expected: dict[AggregateFunction, list[int | None]] = {
            AggregateFunction.COUNT: [len(known)],
            AggregateFunction.SUM: [sum(known), len(known)],
            AggregateFunction.AVG: [sum(known), len(known)],
            AggregateFunction.MIN: [min(known, default=None)],
            AggregateFunction.MAX: [max(known, default=None)],
        }
        wanted: list[int | None] = [kinds.count(kind)]
        for function in functions:
            wanted += expected[function]
        assert wanted == partials


def test_first_and_last_go_by_time_then_position_and_pass_null_over() -> None:
    """The order in which rows come to a task says nothing."""
    output = _output(AggregateFunction.FIRST, AggregateFunction.LAST)
    events = pa.table(
        {
            "kind": ["x"] * 6,
            argument_column(0, 0): pa.array([1, 2, 3, 4, 5, None], pa.int64()),
            argument_column(0, 1): pa.array([1, 2, 3, 4, 5, None], pa.int64()),
            named.EVENT_TIME: pa.array([7, 5, 5, 5, 7, 9], pa.timestamp("us", "UTC")),
            named.PLACE: pa.array([0, 1, 0, 0, 0, 0], pa.int64()),
            named.OFFSET: pa.array([10, 1, 9, 8, 9, 0], pa.int64()),
        }
    )
    (row,) = aggregate_windows(events, _in_one_window(6), output, 0).to_pylist()
    assert (4, 1) == (row["tallyweir_a0_first"], row["tallyweir_a1_last"])
    assert row["tallyweir_a0_place"] < row["tallyweir_a1_place"]


def test_a_sum_beyond_64_bits_does_not_wrap() -> None:
    """Arrow adds integers modulo 2**64; three of the largest would be small."""
    largest = 2**63 - 1
    output = _output(AggregateFunction.SUM)
    found = _aggregate(output, ["x"] * 3, pa.array([largest] * 3, pa.int64()))
    assert Decimal(3 * largest) in found["x"].values()
    found = _aggregate(output, ["x"] * 3, pa.array([-largest - 1] * 3, pa.int64()))
    assert Decimal(3 * (-largest - 1)) in found["x"].values()


_NUMBERS = st.floats(width=32) | st.sampled_from(
    [math.nan, -math.nan, math.inf, -math.inf, 0.0, -0.0]
)


def _postgres_order(number: float) -> tuple[bool, float]:
    """What sorts numbers as Postgres does: NaN is the greatest."""
    return math.isnan(number), 0.0 if math.isnan(number) else number


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.none() | _NUMBERS, st.integers(0, 3)), min_size=1),
    st.sampled_from([pa.float32(), pa.float64()]),
)
@example([(math.nan, 0), (1.0, 0)], pa.float64())
@example([(math.nan, 0), (1.0, 1)], pa.float64())
@example([(0.0, 0), (-0.0, 1)], pa.float64())
def test_least_and_greatest_do_not_depend_on_how_values_fall_into_tasks(
    values: list[tuple[float | None, int]], kind: pa.DataType
) -> None:
    """Each task says what Postgres would, which merges what they say."""
    output = _output(AggregateFunction.MIN, AggregateFunction.MAX)

    def of_task(numbers: list[float | None]) -> tuple[float | None, float | None]:
        found = _aggregate(output, ["x"] * len(numbers), pa.array(numbers, kind))
        row = found["x"]
        return row["tallyweir_a0_min"], row["tallyweir_a1_max"]  # type: ignore[return-value]

    parts = [
        of_task([number for number, task in values if task == wanted])
        for wanted in sorted({task for _, task in values})
    ]
    least = [low for low, _ in parts if low is not None]
    greatest = [high for _, high in parts if high is not None]
    merged = (
        min(least, key=_postgres_order, default=None),
        max(greatest, key=_postgres_order, default=None),
    )
    known = [number for number, _ in values if number is not None]
    expected = (
        min(known, key=_postgres_order, default=None),
        max(known, key=_postgres_order, default=None),
    )
    # Equal to the sign of zero, which Postgres does not look at.
    assert repr(merged) == repr(of_task([number for number, _ in values]))
    assert repr(merged).replace("-0.0", "0.0") == repr(expected).replace("-0.0", "0.0")


_SUMMARIES = (
    AggregateFunction.APPROX_COUNT_DISTINCT,
    AggregateFunction.APPROX_PERCENTILE,
)


@settings(deadline=None)
@given(st.lists(st.tuples(_NUMBERS, st.integers(0, 3)), min_size=1))
def test_sketches_do_not_depend_on_how_values_fall_into_tasks(
    values: list[tuple[float, int]],
) -> None:
    """NaN is one value, the greatest; so are zero and negative zero."""
    output = _output(*_SUMMARIES)

    def of_task(numbers: list[float]) -> list[bytes]:
        found = _aggregate(output, ["x"] * len(numbers), pa.array(numbers))
        return [found["x"][f"tallyweir_a{n}_sketch"] for n in (0, 1)]  # type: ignore[misc]

    parts = [
        of_task([number for number, task in values if task == wanted])
        for wanted in sorted({task for _, task in values})
    ]
    together = of_task([number for number, _ in values])
    for number, aggregate in enumerate(output.aggregates):
        sketch = sketch_of(aggregate)
        joined = sketch.join([part[number] for part in parts])
        assert repr(sketch.ask(joined)) == repr(sketch.ask(together[number]))


_LONGEST = decimal.Context(prec=60)


@example([Decimal(9 * 10**35)] * 3)
@given(st.lists(st.decimals(1 - 10**36, 10**36 - 1, places=2), min_size=1, max_size=40))
def test_sums_of_long_decimals_do_not_wrap(values: list[Decimal]) -> None:
    """Arrow adds decimals modulo 2**128: parts are staged where they would not fit."""
    output = _output(AggregateFunction.SUM)
    events = pa.table(
        {
            "kind": ["x"] * len(values),
            argument_column(0, 0): pa.array(values, pa.decimal128(38, 2)),
        }
    )
    rows = aggregate_windows(events, _in_one_window(len(values)), output, 0).to_pylist()
    total = found = Decimal(0)
    for value in values:
        total = _LONGEST.add(total, value)
    for row in rows:
        found = _LONGEST.add(found, row["tallyweir_a0_sum"])
    assert total == found
    assert len(values) == sum(row["tallyweir_events"] for row in rows)


def test_short_decimals_make_one_part() -> None:
    """Prices of any kind are added up by the task."""
    output = _output(AggregateFunction.SUM)
    found = _aggregate(output, ["x"] * 3, pa.array([Decimal("12.34")] * 3))
    assert Decimal("37.02") in found["x"].values()


def _moments(values: pa.Array) -> tuple[int, float, float]:
    found = _aggregate(_output(AggregateFunction.STDDEV), ["x"] * len(values), values)
    row = found["x"]
    count, mean, squares = list(row.values())[-3:]
    return count, mean, squares  # type: ignore[return-value]


@settings(deadline=None)
@given(st.lists(st.none() | st.integers(-(2**31), 2**31), min_size=1), st.booleans())
def test_moments_are_count_mean_and_squared_distances(
    values: list[int | None],
    is_decimal: bool,  # noqa: FBT001
) -> None:
    """Whatever the type of the values, and zero where there is none."""
    known = [value for value in values if value is not None]
    mean = statistics.fmean(known) if known else 0
    squares = math.fsum((value - mean) ** 2 for value in known)
    kind = pa.decimal128(30, 4) if is_decimal else pa.int64()
    found = _moments(pa.array(values, pa.int64()).cast(kind))
    assert pytest.approx((len(known), mean, squares)) == found


@pytest.mark.parametrize("value", [1e131, -1e300, math.inf, math.nan])
def test_a_value_whose_square_may_overflow_makes_the_deviation_nan(
    value: float,
) -> None:
    """Postgres would raise an error, again and again."""
    count, mean, squares = _moments(pa.array([value, 1.0]))
    assert 2 == count
    assert math.isnan(mean)
    assert math.isnan(squares)


def test_values_and_squares_that_might_underflow_are_zero() -> None:
    """Postgres would raise an error of these as well."""
    assert (2, 0.0, 0.0) == _moments(pa.array([1e-131, -5e-324]))
    count, _, squares = _moments(pa.array([1e-129, 1.0000001e-129]))
    assert (2, 0.0) == (count, squares)


@pytest.mark.parametrize(
    ("values", "different"),
    [
        (pa.array([1, 1, 2, None], pa.int32()), 2),
        (pa.array([None, None], pa.int64()), None),
        (pa.array([Decimal("1.50"), Decimal("1.5"), Decimal(2)]), 2),
        (pa.array(["", "a", "a", None]), 2),
        (pa.array([0.0, -0.0, math.nan, math.nan, 0.5]), 3),
        (pa.array([True, False, True]), 2),
        (pa.array([1, 2, 1], pa.date32()), 2),
        (pa.array([1, 2, 2, 3], pa.timestamp("us", "UTC")), 3),
    ],
)
def test_values_of_every_type_are_told_apart(
    values: pa.Array, different: int | None
) -> None:
    """Null is no value."""
    output = _output(AggregateFunction.APPROX_COUNT_DISTINCT)
    found = _aggregate(output, ["x"] * len(values), values)
    assert different == found["x"]["tallyweir_a0_estimate"]


def test_a_number_counts_as_the_same_when_its_field_was_widened() -> None:
    """Contracts may make a long of an int, or give a decimal more digits."""
    output = _output(AggregateFunction.APPROX_COUNT_DISTINCT)

    def sketch(values: pa.Array) -> object:
        found = _aggregate(output, ["x"] * len(values), values)
        return found["x"]["tallyweir_a0_sketch"]

    assert sketch(pa.array([1, -7], pa.int32())) == sketch(pa.array([1, -7]))
    few, many = pa.decimal128(9, 2), pa.decimal128(20, 6)
    decimals = [Decimal("1.5"), Decimal(-70)]
    assert sketch(pa.array(decimals, few)) == sketch(pa.array(decimals, many))


def test_a_percentile_passes_null_over() -> None:
    """And is null itself where nothing else is."""
    output = _output(AggregateFunction.APPROX_PERCENTILE)
    values = pa.array([None, 10, 20, 30, None], pa.int64())
    found = _aggregate(output, ["x", "x", "x", "x", "y"], values)
    assert pytest.approx(20, rel=0.01) == found["x"]["tallyweir_a0_estimate"]
    assert found["y"]["tallyweir_a0_sketch"] is None
    assert found["y"]["tallyweir_a0_estimate"] is None
