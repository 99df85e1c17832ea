"""Patterns: a failed search takes time as the text is long."""

from __future__ import annotations

import pytest

from tallyweir.schemas.pipeline.expressions.text_patterns import (
    PatternError,
    is_slow_like,
    is_slow_regex,
)


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "^[A-Z]{3}$",
        r"^[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,}$",
        r"^(\d{1,3}\.){3}\d{1,3}$",
        r"^[+-]?\d+(\.\d+)?([eE][+-]?\d+)?$",
        "^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$",
        "^.*foo",
        "^(?!foo)[a-z]+$",
        r"^(?=.*[A-Z])(?=.*\d).{8,}$",
        "^https?://[^/]+/",
        "(?i)error|warn",
        "^(JFK|JFX|LHR)-(JFK|JFX|LHR)$",
        "[]a]",
        r"^[a-z&&[^b]]+x|\p{L}+",
        r"(?<year>\d{4})\x41\u0042",
        "^a++b",
        "^([0-9a-f]{1,4}:){7}[0-9a-f]{1,4}$",
        r"\d{1,2}[.]\d{1,2}[.]\d{2,4} \d{1,2}:\d{1,2}:\d{1,2}",
    ],
)
def test_patterns_of_every_day_are_taken(pattern: str) -> None:
    """Loops that other characters part from one another cannot take from each other."""
    assert not is_slow_regex(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        r"(\d+)-(\d+)",
        "foo.*bar",
        "^.*foo.*bar$",
        r"\s+$",
        "a+b",
        r"\b\w+@\w+\.com\b",
        r"(?i)user[^ ]* logged (in|out) from .*$",
        r"status=\d{3}.*took \d+ ms",
    ],
)
def test_what_takes_the_square_of_a_length_is_known(pattern: str) -> None:
    """A failed search begins at each character, or in the middle, once more."""
    assert is_slow_regex(pattern)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(a+)+$", "repeats a group without end"),
        ("(a|aa)+$", "repeats a group without end"),
        (r"(\w+\s?)*$", "repeats a group without end"),
        ("(?:ab)*c", "repeats a group without end"),
        ("(.*a){20}", "more than 10 times"),
        ("a*a*a*b", "may match the same characters"),
        (".*.*.*x", "may match the same characters"),
        (r"\d+\w+[0-9a]+!", "may match the same characters"),
        (r"(?i)a+A+a+$", "may match the same characters"),
        ("^(?=.*a.*b.*c)", "may match the same characters"),
        ("x(?=a*a*a*b)", "may match the same characters"),
        (r"^a+\n*a+\s*a+b", "may match the same characters"),
        (r"(a+)\1", "refers back"),
        (r"(?<x>a+)\k<x>", "refers back"),
        ("a?a?a?a?.*b", "optional parts"),
        ("(a?){10}", "optional parts"),
        ("(a?){10}(a?){10}a{20}", "optional parts"),
        ("a?" * 30 + "a" * 30, "optional parts"),
        ("(a|a)" * 30 + "b", "optional parts"),
        ("((a|a){10}){10}b", "optional parts"),
        ("(((a{10}){10}){10}){10}", "more than 1000"),
        ("a{1,2000}", "more than 1000"),
        ("x" * 1001, "more than 1000"),
        ("(?=(.*))", "group within a look-ahead"),
        ("(", "ends too early"),
        ("a)", "without an opening one"),
        ("[a", "ends too early"),
        ("*a", "follows nothing"),
        (r"\Qa+\E", "not known here"),
        ("(?x)a", "cannot be read"),
    ],
)
def test_patterns_that_may_search_for_hours_are_refused(
    pattern: str, reason: str
) -> None:
    """A search that fails tries each way in which the parts may share a text."""
    with pytest.raises(PatternError, match=reason):
        is_slow_regex(pattern)


def test_wildcards_of_like_count_but_for_the_last() -> None:
    """The last one matches whatever is left."""
    assert not is_slow_like("%a_b%")
    assert is_slow_like("%a%b%")
    assert is_slow_like("%a_b%c%")
    with pytest.raises(PatternError, match="3 repetitions"):
        is_slow_like("%a%b%c%")
