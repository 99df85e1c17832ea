"""Aggregates: those that merge are taken, all others get the list of those."""

from __future__ import annotations

import pytest

from spark_jobs.pipeline.aggregate import (
    SUPPORTED,
    Aggregate,
    AggregateFunction,
    parse_aggregate,
)
from spark_jobs.pipeline.problems import PipelineError


@pytest.mark.parametrize(
    ("text", "function", "argument"),
    [
        ("count(*)", AggregateFunction.COUNT, None),
        ("count(a)", AggregateFunction.COUNT, "a"),
        ("count_if(a IS NULL)", AggregateFunction.COUNT_IF, "a IS NULL"),
        ("SUM(a * 2)", AggregateFunction.SUM, "a * 2"),
        ("avg(a)", AggregateFunction.AVG, "a"),
        ("mean(a)", AggregateFunction.AVG, "a"),
        ("min(coalesce(a, b))", AggregateFunction.MIN, "coalesce(a, b)"),
        ("max(a)", AggregateFunction.MAX, "a"),
        ("stddev(a)", AggregateFunction.STDDEV, "a"),
    ],
)
def test_supported_aggregates_keep_their_argument_as_written(
    text: str, function: AggregateFunction, argument: str | None
) -> None:
    """Each becomes the function and the SQL that Spark will run."""
    expected = Aggregate(column="c", function=function, argument=argument)
    assert parse_aggregate("c", text) == expected


@pytest.mark.parametrize(
    "text",
    ["median(a)", "count(DISTINCT a)", "sum(a) / count(*)", "a", "sum()", "count(", ""],
)
def test_anything_else_is_answered_with_what_is_supported(text: str) -> None:
    """A user sees at once what a window can keep."""
    with pytest.raises(PipelineError) as caught:
        parse_aggregate("c", text)
    assert caught.value.code == "PIPELINE_AGGREGATE"
    assert SUPPORTED in caught.value.fix


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("sum(rand())", "PIPELINE_FUNCTION_REFUSED"),
        ("sum(max(a))", "PIPELINE_FUNCTION_REFUSED"),
        ("sum(a, b)", "PIPELINE_EXPRESSION_SYNTAX"),
        ("sum(*)", "PIPELINE_EXPRESSION"),
        ("count(t.*)", "PIPELINE_EXPRESSION"),
    ],
)
def test_an_argument_is_one_repeatable_value_of_one_event(text: str, code: str) -> None:
    """Arguments obey the rules of all expressions."""
    with pytest.raises(PipelineError) as caught:
        parse_aggregate("c", text)
    assert caught.value.code == code


def test_only_count_does_without_an_argument() -> None:
    """A program cannot build what no file could say."""
    with pytest.raises(PipelineError) as caught:
        Aggregate(column="c", function=AggregateFunction.SUM)
    assert caught.value.code == "PIPELINE_AGGREGATE"
