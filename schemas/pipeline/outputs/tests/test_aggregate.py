"""Aggregates: those that merge are taken, all others get the list of those."""

from __future__ import annotations

import pytest

from tallyweir.schemas.pipeline.checks.problems import PipelineError
from tallyweir.schemas.pipeline.outputs.aggregate import (
    SUPPORTED,
    Aggregate,
    AggregateFunction,
    parse_aggregate,
)


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
        ("approx_count_distinct(a)", AggregateFunction.APPROX_COUNT_DISTINCT, "a"),
    ],
)
def test_supported_aggregates_keep_their_argument_as_written(
    text: str, function: AggregateFunction, argument: str | None
) -> None:
    """Each becomes the function and the SQL that Spark will run."""
    expected = Aggregate(column="c", function=function, argument=argument)
    assert parse_aggregate("c", text) == expected


def test_a_percentile_has_its_fraction_behind_the_argument() -> None:
    """As in Spark, without the accuracy, which is always the same."""
    expected = Aggregate(
        column="c",
        function=AggregateFunction.APPROX_PERCENTILE,
        argument="coalesce(a, 0)",
        fraction=0.95,
    )
    assert parse_aggregate("c", "approx_percentile(coalesce(a, 0), 0.95)") == expected


@pytest.mark.parametrize("fraction", [-0.1, 1.01, float("nan")])
def test_a_fraction_lies_between_0_and_1(fraction: float) -> None:
    """There is no percentile beyond the greatest value."""
    with pytest.raises(PipelineError) as caught:
        parse_aggregate("c", f"approx_percentile(a, {fraction})")
    assert caught.value.code == "PIPELINE_AGGREGATE"


@pytest.mark.parametrize(
    "text",
    [
        "median(a)",
        "count(DISTINCT a)",
        "sum(a) / count(*)",
        "a",
        "sum()",
        "count(",
        "",
        "approx_percentile(a)",
        "approx_percentile(a, b)",
        "approx_percentile(f(a, 0.5))",
        "approx_count_distinct()",
    ],
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


@pytest.mark.parametrize(
    ("function", "fraction"),
    [(AggregateFunction.SUM, 0.5), (AggregateFunction.APPROX_PERCENTILE, None)],
)
def test_only_a_percentile_has_a_fraction(
    function: AggregateFunction, fraction: float | None
) -> None:
    """A program cannot build what no file could say."""
    with pytest.raises(PipelineError) as caught:
        Aggregate(column="c", function=function, argument="a", fraction=fraction)
    assert caught.value.code == "PIPELINE_AGGREGATE"
