"""The aggregates of windows: those whose partial results merge in SQL."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from tallyweir.schemas.pipeline.checks.names import check_output_column
from tallyweir.schemas.pipeline.checks.problems import (
    PipelineError,
    Problem,
    raise_if_any,
)
from tallyweir.schemas.pipeline.expressions.expressions import (
    inspect_expression,
    split_call,
)

SUPPORTED = (
    "count(*), count(x), count_if(condition), sum(x), avg(x), min(x), max(x), "
    "first(x), last(x), stddev(x), approx_count_distinct(x), "
    "approx_percentile(x, 0.95)"
)


class AggregateFunction(StrEnum):
    """The functions; they skip null arguments, as in SQL."""

    COUNT = "count"
    COUNT_IF = "count_if"
    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"
    FIRST = "first"
    LAST = "last"
    STDDEV = "stddev"
    APPROX_COUNT_DISTINCT = "approx_count_distinct"
    APPROX_PERCENTILE = "approx_percentile"


_BY_NAME = {function.value: function for function in AggregateFunction}
_BY_NAME["mean"] = AggregateFunction.AVG


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """A column of a window's table.

    Attributes:
        column: Name of the result column.
        function: Function to compute.
        argument: Spark SQL over one event; None only in ``count(*)``.
        fraction: The percentile, from 0 to 1; only for ``approx_percentile``.

    Raises:
        PipelineError: A bad name, or an argument that is not one value of one event.
    """

    column: str
    function: AggregateFunction
    argument: str | None = None
    fraction: float | None = None

    def __post_init__(self) -> None:
        raise_if_any("Aggregate", self._find_problems())

    def _find_problems(self) -> Iterator[Problem]:
        yield from check_output_column(self.column, ())
        if self.argument is not None:
            yield from inspect_expression(self.argument).problems
        elif self.function is not AggregateFunction.COUNT:
            yield _unsupported(f"{self.function}()")
        is_percentile = self.function is AggregateFunction.APPROX_PERCENTILE
        if is_percentile != (self.fraction is not None):
            yield _unsupported(f"{self.function} with the fraction {self.fraction}")
        elif self.fraction is not None and not 0 <= self.fraction <= 1:
            yield Problem(
                code="PIPELINE_AGGREGATE",
                saw=f"The percentile of {self.column} is {self.fraction}.",
                why="The fraction is the share of values below the percentile, from "
                "0 to 1.",
                fix="Write approx_percentile(x, 0.95), for example.",
            )


def parse_aggregate(column: str, text: str) -> Aggregate:
    """Read ``avg(dep_delay_minutes)`` as the column of a window's table.

    Raises:
        PipelineError: The text is not one call of a supported aggregate over a row
            expression.
    """
    call = split_call(text)
    function = _BY_NAME.get(call[0].lower()) if call else None
    if call is None or function is None or not call[1]:
        raise PipelineError([_unsupported(text)], ["Aggregate"])
    argument = call[1]
    if argument.split(maxsplit=1)[0].lower() == "distinct":
        raise PipelineError([_unsupported(text)], ["Aggregate"])
    fraction = None
    if function is AggregateFunction.APPROX_PERCENTILE:
        argument, _, last = argument.rpartition(",")
        fraction = _read_fraction(last)
        if fraction is None:
            raise PipelineError([_unsupported(text)], ["Aggregate"])
    is_count_of_rows = function is AggregateFunction.COUNT and argument == "*"
    return Aggregate(
        column=column,
        function=function,
        argument=None if is_count_of_rows else argument,
        fraction=fraction,
    )


def _read_fraction(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _unsupported(text: str) -> Problem:
    return Problem(
        code="PIPELINE_AGGREGATE",
        saw=f"{text!r} is not an aggregate that a window supports.",
        why="Partial results of each batch must merge into the window's row.",
        fix=f"Write one of {SUPPORTED}.",
    )
