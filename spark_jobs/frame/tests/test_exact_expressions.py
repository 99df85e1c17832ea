"""Expressions of a pipeline: the exact result, or a dead letter that says why."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.spark]

#: The same for every change; with others by the variable below.
_SEED = "972506537"
_ROWS = 260


def _run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            "-m",
            f"tallyweir.spark_jobs.frame.tests.{module}",
            *arguments,
        ],
        cwd=Path(__file__).parents[3],
        check=False,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Any:  # noqa: ANN401 - JSON
    """What one Spark session says."""
    run = _run("judged_expressions", str(tmp_path_factory.mktemp("judged")))
    assert run.returncode == 0
    return json.loads(run.stdout)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "expressions", [150, pytest.param(400, marks=pytest.mark.long)]
)
def test_every_expression_is_exact_or_has_failed_for_the_reason_that_is_told(
    tmp_path: Path, expressions: int
) -> None:
    """By chance, over all types, against exact evaluation outside Spark."""
    seed = os.environ.get("TALLYWEIR_EXPRESSIONS_SEED", _SEED)
    counts = str(expressions), str(_ROWS)
    run = _run("compared_expressions", str(tmp_path), seed, *counts)
    print(run.stdout)  # noqa: T201 - the seed
    assert run.returncode == 0, run.stdout


@pytest.mark.timeout(300)
@pytest.mark.parametrize("pipelines", [3, pytest.param(15, marks=pytest.mark.long)])
def test_every_computed_column_is_exact_or_the_first_that_fails_is_told(
    tmp_path: Path, pipelines: int
) -> None:
    """By chance, each of columns before it, as tasks get them of records of Kafka."""
    seed = os.environ.get("TALLYWEIR_EXPRESSIONS_SEED", _SEED)
    counts = str(pipelines), str(_ROWS)
    run = _run("compared_columns", str(tmp_path), seed, *counts)
    print(run.stdout)  # noqa: T201 - the seed
    assert run.returncode == 0, run.stdout


_OVERFLOWS = "pieces * cents overflows int."


@pytest.mark.parametrize(
    ("name", "outcome", "detail"),
    [
        (
            "rule",
            "EXPRESSION_FAILED",
            f"The rule NEGATIVE, pieces * cents >= 0, has no value: {_OVERFLOWS}",
        ),
        (
            "argument",
            "EXPRESSION_FAILED",
            f"by_hour.total, pieces * cents, has no value: {_OVERFLOWS}",
        ),
        (
            "shared",
            "EXPRESSION_FAILED",
            f"The rule NEGATIVE, pieces * cents >= 0, has no value: {_OVERFLOWS}",
        ),
        ("widened", "COMMITTED", None),
        (
            "where",
            "EXPRESSION_FAILED",
            (
                "The condition of by_hour, pieces * cents > 1000000000, has no value: "
                f"{_OVERFLOWS}"
            ),
        ),
        (
            "doubled",
            "EXPRESSION_FAILED",
            "by_hour.total, l * 2, has no value: l * 2 overflows bigint.",
        ),
        (
            "one more",
            "EXPRESSION_FAILED",
            "by_hour.total, l + 1, has no value: l + 1 overflows bigint.",
        ),
        (
            "negated",
            "EXPRESSION_FAILED",
            "by_hour.total, -l, has no value: -l overflows bigint.",
        ),
        (
            "absolute",
            "EXPRESSION_FAILED",
            "by_hour.total, abs(l), has no value: abs(l) overflows bigint.",
        ),
        ("small price", "COMMITTED", None),
        ("large price", "COMMITTED", None),
        (
            "too large price",
            "EXPRESSION_FAILED",
            (
                "by_hour.total, price * 1000000, has no value: "
                "price * 1000000 overflows decimal(38,10)."
            ),
        ),
        ("broken before", "FIRST", "Not true of the event: l > 9"),
        (
            "fails before",
            "EXPRESSION_FAILED",
            f"The rule FIRST, pieces * cents >= 0, has no value: {_OVERFLOWS}",
        ),
        (
            "rule behind filter",
            "EXPRESSION_FAILED",
            f"The rule NEGATIVE, pieces * cents >= 0, has no value: {_OVERFLOWS}",
        ),
        (
            "filter",
            "EXPRESSION_FAILED",
            (
                "The filter, cents / pieces > 1, has no value: "
                "cents / pieces divides by zero."
            ),
        ),
        ("behind filter", "FILTERED", None),
        ("behind where", "COMMITTED", None),
        ("case", "COMMITTED", None),
        (
            "side",
            "EXPRESSION_FAILED",
            (
                "The condition of left of pairs, cents / pieces > 1, has no value: "
                "cents / pieces divides by zero."
            ),
        ),
    ],
)
def test_an_event_on_which_an_expression_fails_is_dead(
    answers: Any,  # noqa: ANN401 - JSON
    name: str,
    outcome: str,
    detail: str | None,
) -> None:
    """Unless nobody asks for the expression; the first that fails is told."""
    assert answers["judged"][name][:2] == [outcome, detail]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("widened", "5000000000"),
        ("small price", "3.6E-9"),
        ("large price", "1000000000000000000000000000.0000000000"),
        ("case", "None"),
    ],
)
def test_an_argument_is_exact(answers: Any, name: str, value: str) -> None:  # noqa: ANN401 - JSON
    """No place is lost, and none is added up that was not asked for."""
    assert answers["judged"][name][2] == [value]


def test_nothing_that_fails_on_an_event_ends_the_batch(answers: Any) -> None:  # noqa: ANN401 - JSON
    """Whatever Spark raises, or gives instead of raising."""
    assert [] == [
        [text, *found] for text, found in answers["failing"].items() if not found[1]
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("long RLIKE 'x.*y'", "RLIKE 'x.*y' searches a text of more than 10,000"),
        ("concat_ws(long, word, word)", "has a separator of more than 10"),
    ],
)
def test_a_text_that_is_too_long_is_told(answers: Any, text: str, words: str) -> None:  # noqa: ANN401 - JSON
    """A search would take hours, and a separator between many parts the memory."""
    assert answers["failing"][text][1].endswith(f"{words} characters.")


def test_what_an_expression_asks_for_is_no_failure(answers: Any) -> None:  # noqa: ANN401 - JSON
    """A null that it wants, and parts that are not needed."""
    values = {text: value for text, (value, _) in answers["given"].items()}
    assert [] == [why for _, why in answers["given"].values() if why is not None]
    assert values == {
        "try_divide(1, zero)": "None",
        "try_cast(word AS int)": "None",
        "coalesce(try_divide(1, zero), 7)": "7.0",
        "if(zero = 0, 1, 1 / zero)": "1.0",
        "zero = 0 OR 1 / zero > 0": "True",
        "l + -1 + 1": str(2**63 - 1),
        "-l + 9223372036854775807 + 5": "5",
        "cast(NULL AS int) + 1": "None",
        "left(long, 1000) RLIKE 'x.*y'": "False",
        "element_at(array(1, 2), nullif(zero, 0)) > 0": "None",
        "array(1, 2)[nullif(zero, 0)] IS NOT NULL": "False",
        "element_at(map(1, 2), nullif(zero, 0)) + 1": "None",
        "long RLIKE '^x+$'": "True",
        "long LIKE '%x%'": "True",
        "word ILIKE '%Z%Z%'": "True",
        "concat_ws(left(long, 10), zero, zero)": f"0{'x' * 10}0",
    }


def test_functions_within_one_another_take_no_power_of_their_number(
    answers: Any,  # noqa: ANN401 - JSON
) -> None:
    """A text is searched once; what is repeated otherwise has a bound."""
    refused = {name for name, one in answers["nested"].items() if one.startswith("EXP")}
    assert refused == {
        "many abs",
        "logarithms",
        "roots",
        "floors",
        "casts",
        "quotients",
        "elements",
    }
    assert {
        name: answers["nested"][name] for name in answers["nested"].keys() - refused
    } == {
        "searches": "%zz[",
        "separators": "%zz[",
        "abs": str(2**63 - 1),
        "nulls": "%zz[",
        "minus": str(2**63 - 1),
        "sums": str(float(2**63)),
    }
