"""Limits: what one event may cost is written in the file, by literals."""

from __future__ import annotations

import pytest

from tallyweir.schemas.pipeline.expressions.expressions import inspect_expression
from tallyweir.schemas.pipeline.expressions.spark_functions import (
    ARGUMENTS,
    GROWING,
    is_known,
)


@pytest.mark.parametrize(
    "text",
    [
        "repeat(a, 3) || 'x' = b",
        "lpad(a, 10, '0') < rpad(b, 10)",
        "space(10) = a",
        "exists(sequence(1, 10), x -> x = n)",
        "sequence(10, -10, -5)[0] = n",
        "array_repeat(a, 5)[0] = a",
        "replace(a, b, '--') = c",
        "concat_ws(', ', a, b, c) = d AND array_join(xs, '-', 'none') = d",
        "regexp_replace(a, '[^0-9]', '') = b",
        "split(a, ',')[0] = 'x'",
        "format_string('%5d of %.2f', n, x) = a",
        "format_number(x, 2) = a OR format_number(x, '#,###.##') = a",
        "round(x, 2) = ceil(x, -1)",
        "levenshtein(a, b, 3) >= 0",
        "a RLIKE '^[A-Z]+$' AND b NOT LIKE 'x%' ESCAPE '!'",
        "a LIKE ALL ('x%', '%y') OR a ILIKE 'it' 's'",
        "a RLIKE 'x.*y' AND NOT b NOT LIKE '%x%y%' AND split(a, ' +x')[0] = 'x'",
        "regexp_extract(a, '([0-9]+)-([0-9]+)', 1) = b",
        "concat_ws(a, b, c) = d AND array_join(xs, a) = b",
        "CASE WHEN a LIKE 'x%' THEN 1 ELSE 2 END = 1",
        "from_json(a, 'x int, y string', map('mode', 'FAILFAST')).x = 1",
        "to_json(s, map('ignoreNullFields', 'false')) = a",
        "date_format(at, 'yyyy-MM') = a",
        " AND ".join(f"nullif(a, {n}) BETWEEN 1 AND 2" for n in range(20)),
        "parse_url(a, 'QUERY', 'id') = b",
        " AND ".join(f"concat(a{n}, b{n}) <> ''" for n in range(200)),
        f"a IN ({', '.join(repr(str(n)) for n in range(2000))})",
    ],
)
def test_what_literals_bound_is_taken(text: str) -> None:
    """Ordinary uses of what could be too much are none."""
    assert [problem.saw for problem in inspect_expression(text).problems] == []


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("size(sequence(1, n)) > 0", "calls sequence at character 6"),
        ("size(sequence(1, 2000000000)) > 0", "calls sequence"),
        ("size(sequence(d, e, INTERVAL 1 DAY)) > 0", "calls sequence"),
        ("size(sequence(-2000000000, 1, 2)) > 0", "calls sequence"),
        ("repeat(a, n) = b", "argument 2 of repeat at character 1"),
        ("`repeat`(a, n) = b", "argument 2 of repeat"),
        ("system.builtin.REPEAT(a, n) = b", "argument 2 of repeat at character 16"),
        ("repeat(a, 2 * 3) = b", "argument 2 of repeat"),
        ("repeat(repeat(a, 100), 100) = b", "10,000 times as large as the event"),
        ("repeat(repeat(repeat('x', 9999), 9999), 9999) = b", "times as large"),
        ("repeat(a || a, 60) = b", "120 times as large"),
        ("hex(hex(hex(hex(hex(hex(hex(a))))))) = b", "128 times as large"),
        ("replace(a, 'x', repeat('y', 9)) = b", "argument 3 of replace"),
        ("replace(a, 'x', b) = b", "argument 3 of replace"),
        (f"replace(a, 'x', '{'y' * 101}') = b", "times as large"),
        ("regexp_replace(a, 'x', b) = b", "argument 3 of regexp_replace"),
        ("repeat(array_join(xs, a), 6) = b", "120 times as large"),
        ("array_join(xs, a, b) = b", "argument 3 of array_join"),
        ("space(n) = a", "argument 1 of space"),
        ("space(100000) = a", "argument 1 of space"),
        ("array_repeat(a, n)[0] = a", "argument 2 of array_repeat"),
        ("array_insert(xs, n, 1)[0] = 1", "argument 2 of array_insert"),
        ("lpad(a, n) = b", "argument 2 of lpad"),
        ("rpad(a, 1e9) = b", "argument 2 of rpad"),
        ("format_string('%1000000000d', n) = a", "a width of more than 10000"),
        ("printf('%.1000000000f', x) = a", "a width of more than 10000"),
        ("format_string(a, n) = a", "argument 1 of format_string"),
        ("format_number(x, n) = a", "argument 2 of format_number"),
        ("round(x, 1000000000) > 0", "argument 2 of round"),
        ("round(x, n) > 0", "argument 2 of round"),
        ("levenshtein(a, b) > 3", "without a threshold"),
        ("levenshtein(a, b, n) > 3", "argument 3 of levenshtein"),
        ("a RLIKE b", "computes the pattern of RLIKE at character 3"),
        ("a REGEXP '(a+)+$'", "a pattern that repeats a group without end"),
        ("a RLIKE '^x' || b", "computes the pattern"),
        ("a RLIKE ('^x')", "computes the pattern"),
        ("a NOT LIKE (b)", "computes the pattern"),
        ("a LIKE ANY ('x%', b)", "computes the pattern"),
        ("a RLIKE 'x.*y.*z'", "may match the same characters"),
        ("split(a, 'x+ *x+ *x+y')[0] = 'x'", "may match the same characters"),
        ("str_to_map(a, ' +x')['k'] = 'x'", "may match the same characters"),
        ("left(a, 9) LIKE '%a%b%c%'", "may match the same characters"),
        (r"a RLIKE '(a\u002B)\u002Bb'", "repeats a group without end"),
        ("like(a, b)", "argument 2 of like"),
        ("regexp_like(a, '(a|aa)+$')", "repeats a group without end"),
        ("split(a, b)[0] = 'x'", "argument 2 of split"),
        ("str_to_map(a, b)['k'] = 'x'", "argument 2 of str_to_map"),
        ("parse_url(a, 'QUERY', b) = 'x'", "argument 3 of parse_url"),
        ("date_format(at, a) = b", "argument 2 of date_format"),
        ("from_json(a, 'x decimal(10,2)').x > 1", "the type decimal"),
        ("from_json(a, schema_of_json('{}')).x > 1", "argument 2 of from_json"),
        ("variant_get(v, '$.a', 'DECIMAL(10,2)') > 1", "the type decimal"),
        ("from_json(a, 'x int', map('locale', 'de')).x > 1", "the option 'locale'"),
        ("from_csv(a, 'x int', map('maxColumns', '9')).x > 1", "'maxcolumns'"),
        ("from_json(a, 'x int', b).x > 1", "no map of literals"),
        ("from_json(a, 'x int', map('mode', b)).x > 1", "no map of literals"),
        ("(" * 51 + "a" + ")" * 51 + " > 1", "brackets deeper than 50"),
        ("NOT " * 4000 + "a", "brackets deeper than 50"),
        (" + ".join("a" * 3000) + " > 1", "more than 5000 words"),
        (
            f"{'nullif(' * 6}a{', 1)' * 6} = b",
            "nests 6 calls of nullif, regexp_substr or BETWEEN",
        ),
        (
            f"{'(' * 6}a{' BETWEEN FALSE AND TRUE)' * 6}",
            "nests 6 calls of nullif, regexp_substr or BETWEEN",
        ),
    ],
)
def test_what_an_event_could_make_too_much_is_refused(text: str, seen: str) -> None:
    """The error names the place, and what to write."""
    problem = inspect_expression(text).problems[0]
    assert problem.code == "PIPELINE_EXPRESSION_UNBOUNDED"
    assert seen in problem.saw


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("from_xml(a, 'x int', map('rowValidationXSDPath', 'f')).x > 1", "XML"),
        ("xpath_int(a, 'sum(//b)') > 1", "XML"),
        ("from_avro(a, '{}', map('avroSchemaUrl', 'f')).x > 1", "by a schema"),
        ("hll_sketch_estimate(a) > 1", "from bytes"),
    ],
)
def test_what_opens_files_or_trusts_bytes_is_refused(text: str, seen: str) -> None:
    """No option makes these harmless."""
    problem = inspect_expression(text).problems[0]
    assert problem.code == "PIPELINE_FUNCTION_REFUSED"
    assert seen in problem.saw


def test_the_limits_name_functions_that_exist() -> None:
    """A misspelt name would limit nothing."""
    assert [name for name in (*ARGUMENTS, *GROWING) if not is_known(name)] == []
