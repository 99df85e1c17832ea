"""Patterns: what a failed search of takes the square of a text's length is taken."""

from __future__ import annotations

import pytest

from spark_jobs.pipeline.text_patterns import PatternError, check_like, check_regex


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "^[A-Z]{3}$",
        r"^[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,}$",
        r"^(\d{1,3}\.){3}\d{1,3}$",
        r"^[+-]?\d+(\.\d+)?([eE][+-]?\d+)?$",
        "^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$",
        r"(\d+)-(\d+)",
        "foo.*bar",
        "^.*foo.*bar$",
        "^(?!foo)[a-z]+$",
        r"^(?=.*[A-Z])(?=.*\d).{8,}$",
        "^https?://[^/]+/",
        "(?i)error|warn",
        "^(JFK|JFX|LHR)-(JFK|JFX|LHR)$",
        r"\s+$",
        "[]a]",
        r"[a-z&&[^b]]+x|\p{L}+",
        r"(?<year>\d{4})\x41\u0042",
        "^a++b",
    ],
)
def test_patterns_of_every_day_are_taken(pattern: str) -> None:
    """Loops that other characters part from one another cannot take from each other."""
    check_regex(pattern)


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
        ("(a?){10}(a?){10}a{20}", "may be there or not"),
        ("a?" * 30 + "a" * 30, "may be there or not"),
        ("(a|a)" * 30 + "b", "may be there or not"),
        ("((a|a){10}){10}b", "may be there or not"),
        ("(((a{10}){10}){10}){10}", "more than 1000"),
        ("a{1,2000}", "more than 1000"),
        ("x" * 1001, "more than 1000"),
        ("(?=(.*))", "group within a look-ahead"),
        ("(", "ends too early"),
        ("a)", "nothing opens"),
        ("[a", "ends too early"),
        ("*a", "nothing before it"),
        (r"\Qa+\E", "not known here"),
        ("(?x)a", "cannot be read"),
    ],
)
def test_patterns_that_may_search_for_hours_are_refused(
    pattern: str, reason: str
) -> None:
    """A search that fails tries each way in which the parts may share a text."""
    with pytest.raises(PatternError, match=reason):
        check_regex(pattern)


def test_two_wildcards_of_like_are_taken_between_its_ends_and_three_are_not() -> None:
    """The last one matches whatever is left, so it does not count."""
    check_like("%a_b%c%")
    with pytest.raises(PatternError):
        check_like("%a%b%c%")
