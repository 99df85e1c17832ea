"""A task's share of the windows: mergeable partials per window and group.

Arrow's minimum and maximum ignore NaN among other numbers. Postgres, which merges them,
takes NaN for the greatest number. So a window's result would depend on which values
came to a task together. With whole numbers in the order of floats in Postgres, Arrow
and Postgres agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tallyweir.sinks.postgres.outputs.sketches import (
    DistinctSketch,
    PercentileSketch,
    sketch_of,
)
from tallyweir.sinks.postgres.outputs.window_aggregates import (
    SQUARES_MIN,
    VALUE_MAX,
    VALUE_MIN,
    AggregateFunction,
    Partial,
    WindowAggregate,
)
from tallyweir.sinks.postgres.outputs.window_columns import (
    WAITING_SINCE,
    WINDOW_END,
    WINDOW_START,
    LatePolicy,
)
from tallyweir.sinks.postgres.outputs.window_table import WindowTable
from tallyweir.sinks.seen_ids.ordering import BoolArray, I64Array
from tallyweir.spark_jobs.source import event_columns as named
from tallyweir.spark_jobs.source.event_columns import argument_column
from tallyweir.spark_jobs.task.window_assignment import Assigned, join_sessions

_INT64_MAX = 2**63 - 1
_DECIMAL_DIGITS = 38
#: Names the column of ``_parts``.
_PART = "tallyweir_part"
#: A task's sum of floats becomes infinite if it is further from zero than the first
#: bound, and zero if it is closer to zero than the second.
_SUM_MAX = 1e290
_SUM_MIN = 1e-290

#: Aggregates that take one event's value: that of the least or greatest number.
_PLACED = {AggregateFunction.FIRST: "min", AggregateFunction.LAST: "max"}
#: Columns that order events: when they happened, then where they are in Kafka.
_PLACE = (named.EVENT_TIME, named.PLACE, named.OFFSET)
#: Added to event times, so that every allowed one becomes a positive number.
_TIME_OFFSET_US = 2**62
_DIGITS = 19


def find_late(
    ends: I64Array, output: WindowTable, watermark_us: int | None
) -> BoolArray:
    """Tell by their ends which windows are closed for this output.

    With ``revise``, a window stays open for its allowed lateness, unless it was final
    under a former version. With other policies, its row is settled once the watermark
    has passed it. For a session, the event's own end counts, whatever sessions it would
    join, so the answer does not depend on the order of arrival.
    """
    if watermark_us is None:
        return np.zeros(len(ends), dtype=np.bool_)
    closed_us = watermark_us
    if output.late is LatePolicy.REVISE:
        closed_us -= output.allowed_lateness_us
    if output.closed_through_us is not None:
        closed_us = max(closed_us, output.closed_through_us)
    late: BoolArray = ends <= closed_us
    return late


def find_revising(ends: I64Array, watermark_us: int | None) -> BoolArray:
    """Tell which windows the watermark has passed, by their ends."""
    if watermark_us is None:
        return np.zeros(len(ends), dtype=np.bool_)
    passed: BoolArray = ends <= watermark_us
    return passed


def aggregate_windows(
    events: pa.Table, assigned: Assigned, output: WindowTable, output_number: int
) -> pa.Table:
    """Compute the partials of each window and group.

    Args:
        events: The events that ``assigned`` counts from 0.
        assigned: The windows that take them.
        output: The window output.
        output_number: Its position in the pipeline, which names its arguments.

    Returns:
        One row per group, or several if decimals are too long to be added up here. The
        columns are those of ``output.staging_columns``.
    """
    events, assigned = _select(events, assigned, output, output_number)
    if output.has_sessions:
        groups = [events.column(one.name).combine_chunks() for one in output.by]
        assigned = join_sessions(assigned, groups)
    keys = [WINDOW_START.name, WINDOW_END.name, *(one.name for one in output.by)]
    arranged = {
        WINDOW_START.name: _instants(assigned.starts),
        WINDOW_END.name: _instants(assigned.ends),
        **{column.name: events.column(column.name) for column in output.by},
    }
    requests: list[tuple[Any, str]] = [([], "count_all")]
    partial_names: list[str] = []
    for aggregate in output.aggregates:
        source = argument_column(output_number, aggregate.number)
        if source not in events.column_names:
            partial_names.append("count_all")
            continue
        if aggregate.function in _PLACED:
            arranged[source] = _rows_with(events.column(source))
            request = _PLACED[aggregate.function]
            requests.append((source, request))
            # An event's number gives both partials: its value, and its place.
            partial_names += [f"{source}_{request}"] * 2
            continue
        if aggregate.is_sketched:
            arranged[source] = sketchable(aggregate, events.column(source))
            requests.append((source, collecting(aggregate)))
            partial_names += [partial.column.name for partial in aggregate.partials]
            continue
        arranged[source] = _prepare(aggregate, events.column(source))
        for request in _requests(aggregate):
            requests.append((source, request))
            partial_names.append(f"{source}_{request}")
    summed = [arranged[name] for name, request in requests if request == "sum"]
    arranged[_PART] = _parts(summed, len(assigned.rows))
    groups_of = pa.table(arranged).group_by([*keys, _PART], use_threads=False)
    grouped = groups_of.aggregate(requests)
    for aggregate in output.sketched:
        source = argument_column(output_number, aggregate.number)
        found = grouped.column(f"{source}_{collecting(aggregate)}")
        made = sketch_groups(aggregate, found)
        for partial, column in zip(aggregate.partials, made, strict=True):
            grouped = grouped.append_column(partial.column.name, column)
    if output.waits:
        # Publishing fills it in, because a task does not know the time.
        unknown = pa.nulls(grouped.num_rows, pa.timestamp("us", "UTC"))
        grouped = grouped.append_column(WAITING_SINCE.column.name, unknown)
        partial_names.append(WAITING_SINCE.column.name)
    columns = [grouped.column(name) for name in (*keys, "count_all")]
    columns += [
        _partial_column(partial, name, grouped, events)
        for name, partial in zip(partial_names, output.partials[1:], strict=True)
    ]
    return pa.table(columns, names=[column.name for column in output.staging_columns])


def _select(
    events: pa.Table, assigned: Assigned, output: WindowTable, output_number: int
) -> tuple[pa.Table, Assigned]:
    """Take the needed columns of each window's event, in order if that matters."""
    arguments = [
        argument_column(output_number, one.number) for one in output.aggregates
    ]
    wanted = {*(one.name for one in output.by), *arguments}
    has_places = any(one.function in _PLACED for one in output.aggregates)
    if has_places:
        wanted |= set(_PLACE)
    events = events.select([name for name in events.column_names if name in wanted])
    if has_places:
        assigned = _in_order(assigned, events)
    if not np.array_equal(assigned.rows, np.arange(len(events))):
        events = events.take(pa.array(assigned.rows))
    return events, assigned


def _partial_column(
    partial: Partial, name: str, grouped: pa.Table, events: pa.Table
) -> pa.ChunkedArray | pa.Array:
    """Return the partial of each group from the aggregated column of a name."""
    found = grouped.column(name)
    if partial.merge == "squares":
        values = grouped.column(f"{name.rpartition('_')[0]}_count")
        squares = pc.multiply(found, values.cast(pa.float64()))
        return pc.if_else(pc.less(squares, SQUARES_MIN), 0.0, squares).fill_null(0.0)
    if partial.place is not None:
        return events.column(name.rpartition("_")[0]).take(found)
    if partial.is_place:
        return _places(events.take(found))
    if partial.merge in ("least", "greatest"):
        kind = events.column(name.rpartition("_")[0]).type
        return from_ordered(found, kind) if pa.types.is_floating(kind) else found
    return _as_stored(found, partial)


def _in_order(assigned: Assigned, events: pa.Table) -> Assigned:
    """Sort windows by time and position of their events."""
    sort_keys = [(name, "ascending") for name in _PLACE]
    ranks = np.empty(len(events), dtype=np.int64)
    ranks[np.asarray(pc.sort_indices(events, sort_keys))] = np.arange(len(events))
    order = np.argsort(ranks[assigned.rows], kind="stable")
    return Assigned(
        rows=assigned.rows[order],
        starts=assigned.starts[order],
        ends=assigned.ends[order],
    )


def _rows_with(argument: pa.ChunkedArray) -> pa.Array:
    """Number the events; an event without a value has no number."""
    return pa.array(np.arange(len(argument)), mask=np.asarray(argument.is_null()))


def _places(events: pa.Table) -> pa.ChunkedArray:
    """Write time and position as text that sorts by its bytes."""
    time_us = events.column(named.EVENT_TIME).cast(pa.int64())
    numbers = [
        pc.add(time_us, _TIME_OFFSET_US),
        events.column(named.PLACE),
        events.column(named.OFFSET),
    ]
    padded = [
        pc.utf8_lpad(number.cast(pa.string()), width=_DIGITS, padding="0")
        for number in numbers
    ]
    return pc.binary_join_element_wise(*padded, " ")


def _instants(instants_us: I64Array) -> pa.Array:
    return pa.array(instants_us).cast(pa.timestamp("us", "UTC"))


def _requests(aggregate: WindowAggregate) -> list[str]:
    match aggregate.function:
        case AggregateFunction.COUNT:
            return ["count"]
        case AggregateFunction.SUM | AggregateFunction.AVG:
            return ["sum", "count"]
        case AggregateFunction.MIN:
            return ["min"]
        case AggregateFunction.MAX:
            return ["max"]
        case AggregateFunction.STDDEV:
            return ["count", "mean", "variance"]
        case _:
            return []


def _prepare(
    aggregate: WindowAggregate, argument: pa.ChunkedArray
) -> pa.ChunkedArray | pa.Array:
    """Convert values to a type that they can be aggregated as.

    Integers whose sum might not fit into 64 bits are widened, because Arrow would wrap
    the sum. Floats are compared as Postgres compares them.
    """
    if aggregate.function is AggregateFunction.STDDEV:
        return _bounded(argument)
    compares = aggregate.function in (AggregateFunction.MIN, AggregateFunction.MAX)
    if compares and pa.types.is_floating(argument.type):
        return to_ordered(argument)
    sums = aggregate.function in (AggregateFunction.SUM, AggregateFunction.AVG)
    if not (sums and pa.types.is_integer(argument.type)):
        return argument
    bounds = pc.min_max(argument).as_py()
    largest = max(abs(bounds["min"] or 0), abs(bounds["max"] or 0))
    if largest * len(argument) > _INT64_MAX:
        return argument.cast(pa.decimal128(38, 0))
    return argument


def _bounded(argument: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return floats whose squares neither overflow nor underflow."""
    values = argument.cast(pa.float64(), safe=False)
    size = pc.abs(values)
    values = pc.if_else(pc.less(size, VALUE_MIN), 0.0, values)
    return pc.if_else(pc.less_equal(size, VALUE_MAX), values, np.nan)


def _parts(summed: Sequence[pa.ChunkedArray], events: int) -> I64Array:
    """Split the events into numbered parts whose decimals add up without a loss.

    Arrow wraps a sum of decimals that needs more than 128 bits. Usually there is one
    part. A group with several parts has several partials, as it has from several tasks.
    """
    digits = 0
    for values in summed:
        if pa.types.is_decimal(values.type):
            bounds = pc.min_max(values).as_py()
            for bound in (bounds["min"], bounds["max"]):
                if bound:
                    digits = max(digits, bound.adjusted() + 1 + values.type.scale)
    together = min(events, 10 ** max(0, _DECIMAL_DIGITS - digits))
    parts: I64Array = np.arange(events) // max(1, together)
    return parts


def _as_stored(column: pa.ChunkedArray, partial: Partial) -> pa.ChunkedArray:
    """Convert a partial to the type of its staging column; an empty sum is zero."""
    if partial.column.postgres_type == "numeric" and pa.types.is_integer(column.type):
        column = column.cast(pa.decimal128(38, 0))
    if partial.merge not in ("add", "mean"):
        return column
    column = pc.fill_null(column, pa.scalar(0).cast(column.type))
    return _summable(column) if pa.types.is_floating(column.type) else column


def _summable(sums: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return floats that Postgres can add up, and divide by a count.

    Postgres raises an error where IEEE arithmetic overflows to infinity or underflows
    to zero. A batch that holds such values would never be published.
    """
    size = pc.abs(sums)
    sums = pc.if_else(pc.less(size, _SUM_MIN), 0.0, sums)
    infinite = pc.if_else(pc.less(sums, 0.0), -np.inf, np.inf)
    return pc.if_else(pc.greater(size, _SUM_MAX), infinite, sums)


def collecting(aggregate: WindowAggregate) -> str:
    """Name the Arrow aggregation that collects a group's values for its sketch."""
    return "distinct" if isinstance(sketch_of(aggregate), DistinctSketch) else "list"


def sketchable(
    aggregate: WindowAggregate, argument: pa.ChunkedArray
) -> pa.ChunkedArray:
    """Convert values to a type that the sketch takes.

    For a sketch that counts distinct values, everything that is a whole number becomes
    64 bits, so that a contract may widen its field. Decimals become text without
    trailing zeros.
    """
    kind = argument.type
    if isinstance(sketch_of(aggregate), PercentileSketch) or pa.types.is_floating(kind):
        return argument.cast(pa.float64(), safe=False)
    if pa.types.is_decimal(kind):
        texts = [
            None if value is None else str(value.normalize())
            for value in argument.to_pylist()
        ]
        return pa.chunked_array([pa.array(texts, pa.string())])
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return argument
    if pa.types.is_date32(kind):
        argument = argument.cast(pa.int32())
    return argument.cast(pa.int64())


def sketch_groups(
    aggregate: WindowAggregate, groups: pa.ChunkedArray
) -> tuple[pa.Array, pa.Array]:
    """Return the sketch and the estimate of each group; null without values."""
    sketch = sketch_of(aggregate)
    sketches: list[bytes | None] = []
    for group in groups.combine_chunks():
        values = pc.drop_null(group.values)
        if not len(values):
            sketches.append(None)
        elif isinstance(sketch, PercentileSketch):
            sketches.append(sketch.build(values.to_numpy(zero_copy_only=False)))
        else:
            sketches.append(sketch.build(values.to_pylist()))
    estimates = [None if one is None else sketch.ask(one) for one in sketches]
    _, estimate = aggregate.partials
    is_count = estimate.column.postgres_type == "bigint"
    return (
        pa.array(sketches, pa.binary()),
        pa.array(estimates, pa.int64() if is_count else pa.float64()),
    )


_SIGN_BIT = 63
_ALL_BUT_THE_SIGN = np.int64(2**63 - 1)


def to_ordered(values: pa.ChunkedArray) -> pa.Array:
    """Return whole numbers in the order of some floats; null stays null.

    Every NaN is the same, and greater than infinity; negative zero is zero.
    """
    # Adding zero makes negative zero positive, and changes nothing else.
    floats = np.asarray(values.cast(pa.float64()).fill_null(0.0)) + 0.0
    floats[np.isnan(floats)] = np.nan
    mask = np.asarray(values.is_null())
    return pa.array(_mirrored(floats.view(np.int64)), mask=mask)


def from_ordered(ordered: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """Return the floats, of a given type, that ``to_ordered`` has converted."""
    bits = _mirrored(np.asarray(ordered.fill_null(0)))
    floats = pa.array(bits.view(np.float64), mask=np.asarray(ordered.is_null()))
    return floats.cast(kind)


def _mirrored(bits: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Reverse the order of negative numbers; doing it twice changes nothing."""
    mirrored: npt.NDArray[np.int64] = bits ^ ((bits >> _SIGN_BIT) & _ALL_BUT_THE_SIGN)
    return mirrored
