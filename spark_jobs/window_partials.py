"""A task's share of the windows: mergeable partials per window and group."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sinks.postgres.window_aggregates import AggregateFunction, Partial, WindowAggregate
from sinks.postgres.window_table import LatePolicy, WindowTable
from spark_jobs.event_frame import argument_column

I64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

_WINDOW_START = "window_start"
_INT64_MAX = 2**63 - 1


def window_starts(event_time_us: I64Array, size_us: int) -> I64Array:
    """Return the start of each event's window; windows begin at multiples of size."""
    return np.floor_divide(event_time_us, size_us) * size_us


def find_late(
    starts: I64Array, output: WindowTable, watermark_us: int | None
) -> BoolArray:
    """Tell which events this output cannot take any more.

    With ``revise`` a window stays open for its allowed lateness; otherwise its row
    stands once the watermark has passed it.
    """
    if watermark_us is None:
        return np.zeros(len(starts), dtype=np.bool_)
    ends = starts + output.size_us
    if output.late is LatePolicy.REVISE:
        ends = ends + output.allowed_lateness_us
    late: BoolArray = ends <= watermark_us
    return late


def find_revising(
    starts: I64Array, output: WindowTable, watermark_us: int | None
) -> BoolArray:
    """Tell which events fall into windows that the watermark has passed."""
    if watermark_us is None:
        return np.zeros(len(starts), dtype=np.bool_)
    passed: BoolArray = starts + output.size_us <= watermark_us
    return passed


def aggregate_windows(
    events: pa.Table, starts: I64Array, output: WindowTable, output_number: int
) -> pa.Table:
    """Compute the partials of each window and group.

    Args:
        events: The events that the output takes, with its keys and arguments.
        starts: The window of each event.
        output: The window output.
        output_number: Its position in the pipeline, which names its arguments.

    Returns:
        One row per group, columns as ``output.staging_columns``.
    """
    keys = [_WINDOW_START, *(column.name for column in output.by)]
    arranged = {
        _WINDOW_START: pa.array(starts).cast(pa.timestamp("us", "UTC")),
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
