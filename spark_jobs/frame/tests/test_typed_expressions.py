"""What Spark's analyser makes of expressions: nothing is converted in silence."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tallyweir.schemas.pipeline.expressions.expressions import with_written_casts
from tallyweir.schemas.pipeline.expressions.spark_functions import (
    find_refusal,
    is_known,
)

_TAKEN = (
    "ok",
    "NOT ok AND n > 1",
    "n + l > d AND m * n > l",
    "CAST(t AS int) > 3 AND int(t) > 3 AND t::int > 3",
    "string(n) = '1' AND CAST(n AS string) = '1'",
    "try_cast(t AS date) = dt AND date(t) = dt AND to_date(t, 'yyyy') = dt",
    "to_date(t) < DATE '2024-05-01'",
    "dt < at - INTERVAL 1 DAY",
    "n IN (1, 2, NULL) AND coalesce(t, 'x') = 'x'",
    "if(ok, n, NULL) IS NULL AND CASE WHEN ok THEN l ELSE n END > 0",
    "exists(xs, x -> x = t) AND size(filter(ns, (x, i) -> x > i)) > 0",
    "exists(transform(ns, x -> x * n), x -> x > l)",
    "exists(transform(xs, x -> upper(x)), x -> x = t)",
    "aggregate(ns, 0, (a, x) -> a + x) > 1",
    "aggregate(ns, struct(0L, 0), (a, x) -> struct(a.col1 + x, a.col2 + 1)).col1 > 1L",
    "exists(nested, y -> exists(y, x -> x = n))",
    "md5(t) = sha2(t, 256) OR hash(t, n, at) > 0",
    "try_to_number(t, '999D99') > 1.5",
    "s.a > 1 AND s.b = 'x'",
    "date_add(dt, n) > dt AND datediff(at, dt) > 1 AND year(at) = 2024",
    "kafka_topic = 'a'",
    "round(m, 1) = 1.5 AND l % 2 = 0 -- the end",
    "CASE WHEN n = 1 THEN 1 / 0 > n END",
    "n + coalesce(try_cast('x' AS int), 7) > try_add(2147483647, 1)",
)

_COMPUTE = {
    "sum": "n + l",
    "twice": "sum * 2",
    "guessed": "n = '1'",
    "of_guessed": "guessed AND ok",
    "span": "at - timestamp'2024-01-01'",
    "nothing": "null",
    "many": "array(s, s)",
    "of_topic": "length(kafka_topic)",
}
_CONSTANT = {"zero": "coalesce(0, n)"}
_RULE = "n + 1 div zero > 0"

_REFUSED = {
    "abs(n)": ("PIPELINE_EXPRESSION_TYPE", "is of type integer"),
    "sqrt(d)": ("PIPELINE_EXPRESSION_TYPE", "is of type double"),
    "t": ("PIPELINE_EXPRESSION_TYPE", "is of type string"),
    "NULL": ("PIPELINE_EXPRESSION_TYPE", "is of type void"),
    "xs": ("PIPELINE_EXPRESSION_TYPE", "is of type array"),
    "t > 3": ("PIPELINE_EXPRESSION_TYPE", "would take t, which is string, for "),
    "3 < t": ("PIPELINE_EXPRESSION_TYPE", "would take t, which is string, for "),
    "n = '1'": ("PIPELINE_EXPRESSION_TYPE", "would take '1', which is string"),
    "n IN ('1', 2)": ("PIPELINE_EXPRESSION_TYPE", "would take "),
    "n BETWEEN '1' AND 3": ("PIPELINE_EXPRESSION_TYPE", "would take "),
    "at > '2024-05-01'": ("PIPELINE_EXPRESSION_TYPE", "for timestamp"),
    "dt = t": ("PIPELINE_EXPRESSION_TYPE", "would take t"),
    "ok = 'true'": ("PIPELINE_EXPRESSION_TYPE", "would take 'true'"),
    "ok AND t": ("PIPELINE_EXPRESSION_TYPE", "would take t"),
    "ok = 1": ("PIPELINE_EXPRESSION_TYPE", ""),
    "concat(t, n) = 'x'": ("PIPELINE_EXPRESSION_TYPE", "would take n, which is int"),
    "t || dt = 'x'": ("PIPELINE_EXPRESSION_TYPE", "would take dt"),
    "coalesce(t, n) = 'x'": ("PIPELINE_EXPRESSION_TYPE", "would take "),
    "if(ok, t, n) IS NULL": ("PIPELINE_EXPRESSION_TYPE", "would take "),
    "CASE n WHEN '1' THEN ok END": ("PIPELINE_EXPRESSION_TYPE", "would take "),
    "contains(n, '1')": ("PIPELINE_EXPRESSION_TYPE", "would take n"),
    "s.a = '1'": ("PIPELINE_EXPRESSION_TYPE", "would take "),
    "datediff(t, dt) > 1": ("PIPELINE_EXPRESSION_TYPE", "would take t"),
    "exists(xs, x -> x > n)": ("PIPELINE_EXPRESSION_TYPE", "would take "),
    "arrays_overlap(xs, ns)": ("PIPELINE_EXPRESSION_TYPE", "Spark rejects"),
    "string(n) > 1": ("PIPELINE_EXPRESSION_TYPE", "for "),
    "n = gone": ("PIPELINE_EXPRESSION_TYPE", "gone"),
    "abs(xs) > 1": ("PIPELINE_EXPRESSION_TYPE", "Spark rejects"),
    # What is the same for all events Spark computes before it sees one.
    "n + CAST('x' AS int) > 1": ("PIPELINE_EXPRESSION_TYPE", "CAST_INVALID_INPUT"),
    "n > 2147483647 * 2": ("PIPELINE_EXPRESSION_TYPE", "ARITHMETIC_OVERFLOW"),
    "n + element_at(array(1, 2), 5) > 1": ("PIPELINE_EXPRESSION_TYPE", "ARRAY_INDEX"),
    "t || url_decode('%zz') = 'x'": ("PIPELINE_EXPRESSION_TYPE", "DECODE_URL"),
    "date_format(at, 'bb') = 'x'": ("PIPELINE_EXPRESSION_TYPE", "DATETIME_PATTERN"),
    "CASE WHEN ok THEN to_date(t, 'bb') = dt END": (
        "PIPELINE_EXPRESSION_TYPE",
        "DATETIME_PATTERN",
    ),
    "from_utc_timestamp(at, 'nowhere') = at": (
        "PIPELINE_EXPRESSION_TYPE",
        "INVALID_TIMEZONE",
    ),
    "CAST(t AS decimal(10, 2)) > 1": ("PIPELINE_EXPRESSION_UNBOUNDED", "to decimal"),
    "t::decimal(9) > 1": ("PIPELINE_EXPRESSION_UNBOUNDED", "to decimal"),
    "decimal(t) > 1": ("PIPELINE_EXPRESSION_UNBOUNDED", "to decimal"),
    "exists(CAST(xs AS array<decimal(5, 1)>), x -> x > 1)": (
        "PIPELINE_EXPRESSION_UNBOUNDED",
        "to decimal",
    ),
    "aggregate(xs, '', (a, x) -> concat(a, a, x)) = 'x'": (
        "PIPELINE_EXPRESSION_UNBOUNDED",
        "aggregates into a value of any length",
    ),
    "exists(transform(ns, x -> t), x -> x = 'y')": (
        "PIPELINE_EXPRESSION_UNBOUNDED",
        "puts a column of any length",
    ),
    "exists(ns, x -> exists(ns, y -> x + y = 0))": (
        "PIPELINE_EXPRESSION_UNBOUNDED",
        "looks at all of ns for each element",
    ),
    "try_to_timestamp(concat('to', 'day')) = at": (
        "PIPELINE_FUNCTION_REFUSED",
        "for a time",
    ),
    "to_timestamp_ltz('now') = at": ("PIPELINE_FUNCTION_REFUSED", "for a time"),
    "try_to_date('today') = dt": ("PIPELINE_FUNCTION_REFUSED", "for a time"),
}

#: What is called in FROM only, and so never parsed in an expression.
_OF_TABLES = (
    *("collations", "python_worker_logs", "range", "sql_keywords", "variant_explode"),
    "variant_explode_outer",
)

_PROGRAM = """
import json, sys
from pyspark.sql import SparkSession
from tallyweir.spark_jobs.engine import spark_session
from tallyweir import Append, Pipeline, Rule
from tallyweir.schemas.pipeline.checks.problems import PipelineError
from tallyweir.schemas.pipeline.tests.pipelines import SOURCE
from tallyweir.spark_jobs.frame.typed_expressions import check_computed, check_types

local = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
spark = (
    SparkSession.builder.master("local[1]").config(map=local)
    .config("spark.sql.ansi.enabled", "true").getOrCreate()
)
events = spark.createDataFrame([], '''
    t string, n int, l long, d double, m decimal(10,2), b binary, xs array<string>,
    ns array<int>, nested array<array<int>>, at timestamp, dt date, ok boolean,
    s struct<a: int, b: string>, kafka_topic string
''')
texts = json.loads(sys.stdin.read())
rules = [Rule(reason_code=f"R{n}", condition=text) for n, text in enumerate(texts)]
pipeline = Pipeline(
    name="p", source=SOURCE, validate=tuple(rules), outputs=(Append(table="t"),)
)
found = []
try:
    check_types(pipeline, events)
except PipelineError as exc:
    found = [[one.at[1], one.code, one.saw] for one in exc.problems]
def problems_of(check, *given):
    try:
        check(*given)
    except PipelineError as exc:
        return [[*one.at, one.saw] for one in exc.problems]
    return []
compute, constant, rule = json.loads(sys.argv[1])
rows = events
for name, text in constant.items():
    rows = rows.withColumn(name, rows["n"])
constant_pipeline = Pipeline(
    name="p", source=SOURCE, compute=constant, outputs=(Append(table="t"),),
    validate=(Rule(reason_code="R", condition=rule),),
)
computed = [
    problems_of(check_computed, compute, events),
    problems_of(check_computed, constant, events),
    problems_of(check_types, constant_pipeline, rows),
]
functions = [row[0] for row in spark.sql("SHOW FUNCTIONS").collect()]
print(json.dumps({"problems": found, "functions": functions, "computed": computed}))
"""


@pytest.fixture(scope="module")
def answers() -> Any:  # noqa: ANN401 - JSON
    """What one Spark session says."""
    run = subprocess.run(
        [sys.executable, "-c", _PROGRAM, json.dumps([_COMPUTE, _CONSTANT, _RULE])],
        cwd=Path(__file__).parents[3],
        check=True,
        input=json.dumps([*_TAKEN, *_REFUSED]),
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(run.stdout)


@pytest.mark.slow
@pytest.mark.spark
def test_conversions_that_nobody_wrote_are_one_error(
    answers: Any,  # noqa: ANN401 - JSON
) -> None:
    """All of them are told at once; what is of one type, or is cast, is taken."""
    problems = {code: (kind, saw) for code, kind, saw in answers["problems"]}
    texts = [*_TAKEN, *_REFUSED]
    got = {text: problems.get(f"R{n}") for n, text in enumerate(texts)}
    assert {text: got[text] for text in _TAKEN if got[text]} == {}
    wrong = {}
    for text, (code, seen) in _REFUSED.items():
        kind, saw = got[text] or ("", "")
        if kind != code or seen not in saw:
            wrong[text] = (kind, saw)
    assert wrong == {}


@pytest.mark.slow
@pytest.mark.spark
def test_computed_columns_are_of_types_that_are_stored(answers: Any) -> None:  # noqa: ANN401 - JSON
    """All that is wrong is told, but not of columns that read a wrong one."""
    wrong, *_ = answers["computed"]
    told = {(name, saw.partition(" is of type ")[2]) for _, name, saw in wrong}
    assert told == {
        ("guessed", ""),
        ("span", "interval day to second."),
        ("nothing", "void."),
    }


@pytest.mark.slow
@pytest.mark.spark
def test_a_constant_column_is_looked_at_where_it_is_read(answers: Any) -> None:  # noqa: ANN401 - JSON
    """Spark computes with it before it sees an event, and would end each batch."""
    _, alone, ((*at, saw),) = answers["computed"]
    assert alone == []
    assert at == ["validate", "R"]
    assert "DIVIDE_BY_ZERO" in saw


@pytest.mark.slow
@pytest.mark.spark
def test_every_function_of_spark_is_either_taken_or_refused(
    answers: Any,  # noqa: ANN401 - JSON
) -> None:
    """A release of Spark with others needs a decision for each."""
    names = {name for name in answers["functions"] if name.isidentifier()}
    undecided = {n for n in names if not is_known(n) and find_refusal(n) is None}
    assert undecided == {"case", *_OF_TABLES}


def test_casts_that_look_like_functions_are_written_as_casts() -> None:
    """Spark notes which casts were written, but for these."""
    text = "int(string(a || 'int(b)')) > CAST(b AS decimal(10)) AND date(c, d) = e"
    assert with_written_casts(text) == (
        "CAST(CAST(a || 'int(b)' AS string) AS int) > CAST(b AS decimal(10)) "
        "AND date(c, d) = e"
    )
