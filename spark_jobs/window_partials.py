"""A task's share of the windows: mergeable partials per window and group."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sinks.postgres.window_aggregates import AggregateFunction, Partial, WindowAggregate
from sinks.postgres.window_table import (
    WINDOW_END,
    WINDOW_START,
    LatePolicy,
    WindowTable,
)
from spark_jobs.event_frame import argument_column
from spark_jobs.window_assignment import Assigned, join_sessions

I64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

_INT64_MAX = 2**63 - 1


def find_late(
    ends: I64Array, output: WindowTable, watermark_us: int | None
) -> BoolArray:
    """Tell which windows this output keeps closed, by their ends.

    With ``revise`` a window stays open for its allowed lateness; otherwise its row
    stands once the watermark has passed it. Of a session it is the event's own end
    that counts, whatever others it would join: so the answer is the same in each
    order of arrival.
    """
    if watermark_us is None:
        return np.zeros(len(ends), dtype=np.bool_)
    if output.late is LatePolicy.REVISE:
        ends = ends + output.allowed_lateness_us
    late: BoolArray = ends <= watermark_us
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
        One row per group, columns as ``output.staging_columns``.
    """
    arguments = [
        argument_column(output_number, one.number) for one in output.aggregates
    ]
    wanted = [*(one.name for one in output.by), *arguments]
    events = events.select([name for name in wanted if name in events.column_names])
    if not np.array_equal(assigned.rows, np.arange(len(events))):
        events = events.take(pa.array(assigned.rows))
    if output.has_sessions:
        groups = [events.column(one.name).combine_chunks() for one in output.by]
        assigned = join_sessions(assigned, groups)
    keys = [WINDOW_START.name, WINDOW_END.name, *(one.name for one in output.by)]
    arranged = {
        WINDOW_START.name: _instants(assigned.starts),
        WINDOW_END.name: _instants(assigned.ends),
        **{column.name: events.column(column.name) for column in output.by},
    }
    requests: list[tuple[object, str]] = [([], "count_all")]
    partial_names: list[str] = []
    for aggregate in output.aggregates:
        source = argument_column(output_number, aggregate.number)
        if source not in events.column_names:
            partial_names.append("count_all")
            continue
        arranged[source] = _prepare(aggregate, events.column(source))
        for request in _requests(aggregate):
            requests.append((source, request))
            partial_names.append(f"{source}_{request}")
    grouped = pa.table(arranged).group_by(keys, use_threads=False).aggregate(requests)
    columns = [grouped.column(name) for name in (*keys, "count_all")]
    columns += [
        _as_stored(grouped.column(name), partial)
        for name, partial in zip(partial_names, output.partials[1:], strict=True)
    ]
    return pa.table(columns, names=[column.name for column in output.staging_columns])


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


def _prepare(aggregate: WindowAggregate, argument: pa.ChunkedArray) -> pa.ChunkedArray:
    """Widen integers whose sum might not fit into 64 bits, which Arrow would wrap."""
    sums = aggregate.function in (AggregateFunction.SUM, AggregateFunction.AVG)
    if not (sums and pa.types.is_integer(argument.type)):
        return argument
    bounds = pc.min_max(argument).as_py()
    largest = max(abs(bounds["min"] or 0), abs(bounds["max"] or 0))
    if largest * len(argument) > _INT64_MAX:
        return argument.cast(pa.decimal128(38, 0))
    return argument


def _as_stored(column: pa.ChunkedArray, partial: Partial) -> pa.ChunkedArray:
    """Bring a partial to the type of its staging column; an empty sum is zero."""
    if partial.column.postgres_type == "numeric" and pa.types.is_integer(column.type):
        column = column.cast(pa.decimal128(38, 0))
    if partial.merge == "add":
        return pc.fill_null(column, pa.scalar(0).cast(column.type))
    return column
