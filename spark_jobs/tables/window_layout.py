"""Describes a window output's tables in Postgres, and what its tasks compute."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from tallyweir.schemas.pipeline.checks.durations import in_microseconds
from tallyweir.schemas.pipeline.outputs.aggregate import Aggregate
from tallyweir.schemas.pipeline.outputs.aggregate import AggregateFunction as Declared
from tallyweir.schemas.pipeline.outputs.window import (
    Early,
    Fixed,
    Late,
    Panes,
    Session,
    Sliding,
    Window,
)
from tallyweir.sinks.postgres.outputs.window_aggregates import (
    AggregateFunction,
    WindowAggregate,
)
from tallyweir.sinks.postgres.outputs.window_columns import (
    AlignedWindows,
    LatePolicy,
    SessionWindows,
    WindowKind,
)
from tallyweir.sinks.postgres.outputs.window_table import WindowTable
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.protocol.column_names import stored_name
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.spark_jobs.source.event_columns import argument_column

#: The types that sums are kept in: wide enough that a sum of integers never overflows.
_SUM_TYPES = {
    "smallint": "numeric",
    "integer": "numeric",
    "bigint": "numeric",
    "numeric": "numeric",
    "real": "double precision",
    "double precision": "double precision",
    "boolean": "bigint",
}
_SUM_RESULTS = {
    "smallint": "bigint",
    "integer": "bigint",
    "bigint": "numeric",
    "numeric": "numeric",
    "real": "double precision",
    "double precision": "double precision",
}
_ORDERED = frozenset(
    {
        *_SUM_RESULTS,
        "text",
        "date",
        "timestamp with time zone",
        "timestamp without time zone",
    }
)
#: The type that can be kept, but has no order of its own.
_FLAG = frozenset({"boolean"})


def window_table(
    number: int,
    output: Window,
    staging: str,
    types: Mapping[str, str],
    branches: tuple[str, ...],
) -> WindowTable:
    """Describe a window output to the databases that it is in.

    Args:
        number: Its position in the pipeline.
        output: The window output.
        staging: Name of its staging table.
        types: Postgres type of every column of the event frame.
        branches: The branches that publish it.

    Raises:
        ConfigurationError: ``AGGREGATE_TYPE``: an aggregate of a type that it is not
            defined for. ``GROUP_TYPE``: a column of ``by`` is nested.
    """
    for name in output.by:
        if types[name] == "jsonb":
            raise ConfigurationError(
                "GROUP_TYPE",
                saw=f"The column {name}, by which {output.table} is grouped, is an "
                "array, a map or a record.",
                why="Windows can only be grouped by simple values.",
                fix="Choose another column, or compute a simple one from it.",
            )
    return WindowTable(
        table=output.table,
        staging_table=staging,
        windows=_window_kind(output.windows),
        by=tuple(
            Column(name=stored_name(name), postgres_type=types[name])
            for name in output.by
        ),
        aggregates=tuple(
            _window_aggregate(
                output,
                aggregate,
                position,
                types.get(argument_column(number, position)),
            )
            for position, aggregate in enumerate(output.aggregates)
        ),
        # Only a row that may be revised stays open after the watermark has passed.
        allowed_lateness_us=in_microseconds(output.allowed_lateness)
        if output.late is Late.REVISE
        else 0,
        late=LatePolicy(output.late.value),
        early_us=_early_us(output),
        discards=output.panes is Panes.DISCARDING,
        metrics=output.metrics,
        branches=branches,
    )


def _early_us(output: Window) -> int | None:
    if isinstance(output.early, timedelta):
        return in_microseconds(output.early)
    return 0 if output.early is Early.BATCH else None


def _window_kind(windows: Fixed | Sliding | Session) -> WindowKind:
    if isinstance(windows, Session):
        return SessionWindows(gap_us=in_microseconds(windows.gap))
    every = windows.every if isinstance(windows, Sliding) else windows.size
    return AlignedWindows(
        size_us=in_microseconds(windows.size),
        every_us=in_microseconds(every),
        time_zone=windows.time_zone,
    )


def _window_aggregate(
    output: Window,
    aggregate: Aggregate,
    position: int,
    argument_type: str | None,
) -> WindowAggregate:
    """Choose the types of an aggregate's result and partials."""
    partial_type = "bigint"
    result_type = "bigint"
    match aggregate.function:
        case Declared.COUNT:
            function = AggregateFunction.COUNT
        case Declared.COUNT_IF:
            function = AggregateFunction.COUNT
            _require(output, aggregate, argument_type, frozenset({"boolean"}))
        case Declared.SUM | Declared.AVG:
            kind = _require(output, aggregate, argument_type, frozenset(_SUM_RESULTS))
            partial_type = _SUM_TYPES[kind]
            if aggregate.function is Declared.SUM:
                function = AggregateFunction.SUM
                result_type = _SUM_RESULTS[kind]
            else:
                function = AggregateFunction.AVG
                result_type = "numeric" if kind == "numeric" else "double precision"
        case Declared.STDDEV:
            _require(output, aggregate, argument_type, frozenset(_SUM_RESULTS))
            partial_type = result_type = "double precision"
            function = AggregateFunction.STDDEV
        case Declared.APPROX_COUNT_DISTINCT:
            _require(output, aggregate, argument_type, _ORDERED | _FLAG)
            function = AggregateFunction.APPROX_COUNT_DISTINCT
        case Declared.APPROX_PERCENTILE:
            _require(output, aggregate, argument_type, frozenset(_SUM_RESULTS))
            partial_type = result_type = "double precision"
            function = AggregateFunction.APPROX_PERCENTILE
        case Declared.MIN | Declared.MAX:
            result_type = _require(output, aggregate, argument_type, _ORDERED)
            partial_type = result_type
            function = AggregateFunction[aggregate.function.name]
        case Declared.FIRST | Declared.LAST:
            result_type = _require(output, aggregate, argument_type, _ORDERED | _FLAG)
            partial_type = result_type
            function = AggregateFunction[aggregate.function.name]
    return WindowAggregate(
        column=Column(name=aggregate.column, postgres_type=result_type),
        function=function,
        number=position,
        partial_type=partial_type,
        fraction=aggregate.fraction,
    )


def _require(
    output: Window,
    aggregate: Aggregate,
    argument_type: str | None,
    allowed: frozenset[str],
) -> str:
    if argument_type in allowed:
        assert argument_type is not None
        return argument_type
    raise ConfigurationError(
        "AGGREGATE_TYPE",
        saw=f"{output.table}.{aggregate.column} is {aggregate.function}"
        f"({aggregate.argument}), and its argument is {argument_type}.",
        why=f"{aggregate.function} is defined for {', '.join(sorted(allowed))}.",
        fix="Cast the argument, or choose another aggregate.",
    )
