"""Expressions: ordinary Spark SQL passes, what a replay could change does not."""

from __future__ import annotations

import pytest

from tallyweir.schemas.pipeline.expressions.expressions import (
    check_condition,
    find_mistyped,
    find_unknown_columns,
    inspect_expression,
    split_call,
)


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("distance_miles > 0", ("distance_miles",)),
        ("a BETWEEN 1 AND 2 OR b NOT IN ('x', 'y')", ("a", "b")),
        ("name LIKE 'x%' ESCAPE '!' AND code RLIKE '^[A-Z]{3}$'", ("name", "code")),
        ("x LIKE ANY ('a%', 'b%')", ("x",)),
        ("CASE a WHEN 1 THEN b ELSE c.d.e END IS NOT NULL", ("a", "b", "c")),
        ("CAST(a AS decimal(10, 2)) > 1.5D AND b::int = 1L", ("a", "b")),
        ("CAST(a AS struct<x: int>).x = 1", ("a",)),
        ("items[0].price > 1 AND tags['k'] <=> 'v'", ("items", "tags")),
        ("exists(items, x -> x.price > bound)", ("items", "bound")),
        ("aggregate(xs, 0, (acc, x) -> acc + x) > 1", ("xs",)),
        ("date_trunc('hour', at) = at - INTERVAL 1 HOUR", ("at",)),
        ("datediff(DAY, a, b) < 3 AND EXTRACT(YEAR FROM a) > 2000", ("b", "a")),
        ("trim(BOTH 'x' FROM a) || coalesce(b, '') != \"c\"", ("a", "b")),
        ("unix_timestamp(a, 'yyyy') > 0 AND if(b, a, c) DIV 2 = 1", ("a", "b", "c")),
        ("`user`.name = 'now' AND user.name <> 'rand()'", ("user",)),
        ("at > TIMESTAMP '2020-01-01 00:00:00' -- since then", ("at",)),
    ],
)
def test_ordinary_expressions_pass_and_name_their_columns(
    text: str, columns: tuple[str, ...]
) -> None:
    """What Spark takes every day is taken, and nothing else counts as a column."""
    inspection = inspect_expression(text)
    assert [problem.saw for problem in inspection.problems] == []
    assert set(inspection.columns) == set(columns)


@pytest.mark.parametrize(
    ("text", "function", "character"),
    [
        ("rand() > 0.5", "rand", 1),
        ("a = `rand`()", "rand", 5),
        ("system.builtin.RAND() > 0", "rand", 16),
        ("uuid() = a", "uuid", 1),
        ("datediff(now(), a) > 1", "now", 10),
        ("a < current_timestamp", "current_timestamp", 5),
        ("a < current_date()", "current_date", 5),
        ("unix_timestamp() > a", "unix_timestamp", 1),
        ("exists(a, x -> x > random())", "random", 20),
        ("shuffle(a)[0] = 1", "shuffle", 1),
        ("input_file_name() = ''", "input_file_name", 1),
        ("monotonically_increasing_id() = 1", "monotonically_increasing_id", 1),
        ("spark_partition_id() = 1", "spark_partition_id", 1),
        ("aes_encrypt(a, b) IS NULL", "aes_encrypt", 1),
        ("java_method('java.util.UUID', 'randomUUID') = a", "java_method", 1),
        ("a = current_user", "current_user", 5),
        ("a = session_user", "session_user", 5),
        ("a = current_catalog", "current_catalog", 5),
        ("a > localtimestamp", "localtimestamp", 5),
        ("a > current_time(3)", "current_time", 5),
    ],
)
def test_what_a_replay_would_answer_differently_is_refused(
    text: str, function: str, character: int
) -> None:
    """However the call is written, it is found, and the reason is the replay."""
    (problem,) = inspect_expression(text).problems
    assert problem.code == "PIPELINE_FUNCTION_REFUSED"
    assert f"calls {function} at character {character}," in problem.saw
    assert "must give the same answer" in problem.why


@pytest.mark.parametrize(
    "text",
    [
        "CAST('now' AS timestamp) > a",
        "a > DATE 'today'",
        "to_date(' Now ') > a",
        "a > TIMESTAMP_LTZ 'tomorrow CET'",
    ],
)
def test_the_names_of_the_present_are_not_cast(text: str) -> None:
    """Spark casts these strings to the time of the query, so a replay differs."""
    (problem,) = inspect_expression(text).problems
    assert (problem.code, problem.why) == (
        "PIPELINE_FUNCTION_REFUSED",
        "A replay must give the same answer.",
    )


@pytest.mark.parametrize(
    "text",
    [
        "a > cast(concat('to', 'day') AS date)",
        "a > CAST('to' 'day' AS date)",
        "a > to_date(concat('to', 'day'))",
        "a > timestamp(r'now')",
        "a > try_cast(lower('NOW') AS timestamp_ntz)",
    ],
)
def test_no_time_is_computed_of_literals_alone(text: str) -> None:
    """Spark computes these before it sees an event, and knows the words of the present.

    What is computed of an event's text is never taken for them.
    """
    (problem,) = inspect_expression(text).problems
    assert problem.code == "PIPELINE_FUNCTION_REFUSED"
    assert "computes a time from literals only" in problem.saw
    assert not inspect_expression("a > cast(concat(b, 'day') AS date)").problems


@pytest.mark.parametrize(
    ("text", "code", "seen"),
    [
        ("max(a) > 1", "PIPELINE_FUNCTION_REFUSED", "aggregates many events"),
        ("any(a)", "PIPELINE_FUNCTION_REFUSED", "aggregates many events"),
        ("mean(a) > 1", "PIPELINE_FUNCTION_REFUSED", "aggregates many events"),
        ("row_number() = 1", "PIPELINE_FUNCTION_REFUSED", "reads many events"),
        ("explode(a) = 1", "PIPELINE_FUNCTION_REFUSED", "several rows"),
        ("raise_error('x')", "PIPELINE_FUNCTION_REFUSED", "fails on purpose"),
        ("f OVER (PARTITION BY b) = 1", "PIPELINE_EXPRESSION", "window function"),
        ("a IN (SELECT 1)", "PIPELINE_EXPRESSION", "subquery"),
        ("EXISTS (WITH t AS (SELECT 1) FROM t)", "PIPELINE_EXPRESSION", "subquery"),
        ("SELECT 1", "PIPELINE_EXPRESSION", "subquery"),
        ("a > 0; DROP TABLE b", "PIPELINE_EXPRESSION", "semicolon"),
        ("a > :bound", "PIPELINE_EXPRESSION", "parameter at character 5"),
        ("a > ?", "PIPELINE_EXPRESSION", "parameter at character 5"),
        ("a > ${bound}", "PIPELINE_EXPRESSION", "parameter at character 5"),
        ("struct(*) IS NULL", "PIPELINE_EXPRESSION", "star"),
        ("count_iff(a)", "PIPELINE_UNKNOWN_FUNCTION", "count_iff at character 1"),
        ("a >", "PIPELINE_EXPRESSION_SYNTAX", "at character 3, after 'a >'"),
        ("a > 1)", "PIPELINE_EXPRESSION_SYNTAX", "at character 6"),
        ("a AS b", "PIPELINE_EXPRESSION_SYNTAX", "after 'a AS'"),
        ("drop table b", "PIPELINE_EXPRESSION_SYNTAX", "after 'drop'"),
        ("a = 'x", "PIPELINE_EXPRESSION_SYNTAX", "not closed"),
        ("  -- nothing", "PIPELINE_EXPRESSION_SYNTAX", "it is empty"),
    ],
)
def test_what_is_not_one_value_of_one_event_is_refused(
    text: str, code: str, seen: str
) -> None:
    """The first problem names what was found, and where."""
    problem = inspect_expression(text).problems[0]
    assert problem.code == code
    assert seen in problem.saw


def test_a_misspelt_function_is_answered_with_the_nearest() -> None:
    """Spark would say so only once it runs."""
    (problem,) = inspect_expression("lenght(a) > 1").problems
    assert problem.fix == "Write length."


def test_an_unknown_column_is_answered_with_the_nearest() -> None:
    """Only the head of a path is a column, and case does not count, as in Spark."""
    known = ["origin", "distance_miles"]
    text = "ORIGIN = 'x' AND distance_mile.x > 0"
    (problem,) = find_unknown_columns(text, known)
    assert problem.saw == f"{text!r} reads the column 'distance_mile'."
    assert problem.fix == "Write distance_miles."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("count(*)", ("count", "*")),
        (" SUM( if(a, (1), ')') ) ", ("SUM", "if(a, (1), ')')")),
        ("count()", ("count", "")),
        ("sum(a) + sum(b)", None),
        ("(count(*))", None),
        ("sum(a) FILTER (WHERE b)", None),
        ("a", None),
        ("sum(a", None),
        ("'sum'(a", None),
        ("", None),
        ("a b (c)", None),
    ],
)
def test_only_a_text_that_is_one_call_is_split(
    text: str, expected: tuple[str, str] | None
) -> None:
    """The argument is handed on as it was written, brackets in strings and all."""
    assert split_call(text) == expected


_TYPES = {
    "meter": "string",
    "grade": "enum",
    "kw": "double",
    "cents": "decimal(10,2)",
    "at": "timestamp-micros",
}


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("meter > 3", "compares meter, which is string, with a number"),
        ("-3 < METER", "compares METER, which is string, with a number"),
        ("ok AND meter IN ('a', 2)", "compares meter, which is string, with a number"),
        ("grade = 1", "compares grade, which is enum, with a number"),
        ("kw BETWEEN '1' AND 2", "compares kw, which is double, with a text"),
        ("cents <=> '1.5'", "compares cents, which is decimal(10,2), with a text"),
        ("NOT at >= '2024-05-01'", "compares at, which is timestamp-micros"),
    ],
)
def test_a_field_is_compared_with_literals_of_its_kind(text: str, seen: str) -> None:
    """The file says so before Spark starts, which knows the rest."""
    (problem,) = find_mistyped(text, _TYPES)
    assert problem.code == "PIPELINE_EXPRESSION_TYPE"
    assert seen in problem.saw


@pytest.mark.parametrize(
    "text",
    [
        "meter > '3' AND kw > 3 AND cents < 1.5",
        "CAST(meter AS int) > 3",
        "at > TIMESTAMP '2024-05-01'",
        "exists(xs, kw -> kw = 'x')",
        "s.kw = 'x' AND other = 'x' AND length(meter) = 3",
    ],
)
def test_what_fits_or_is_not_known_is_left_to_spark(text: str) -> None:
    """Casts, parts of fields and columns of lookups have types of their own."""
    assert list(find_mistyped(text, _TYPES)) == []


@pytest.mark.parametrize("text", ["kw + 1", "(kw % 2)", "1", "'true'", "a || b"])
def test_a_number_or_text_is_no_condition(text: str) -> None:
    """Spark would take it for true, or for null."""
    (problem,) = check_condition(text)
    assert problem.code == "PIPELINE_EXPRESSION_TYPE"
