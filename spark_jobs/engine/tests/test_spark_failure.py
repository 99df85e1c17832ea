"""What is quoted of Spark's long words."""

from __future__ import annotations

import pytest

from tallyweir.spark_jobs.engine.spark_failure import query_failed, what_failed_and_why


@pytest.mark.parametrize(
    ("said", "quoted"),
    [
        ("", "no reason given"),
        ("\n  \n", "no reason given"),
        ("Job aborted.\n", "Job aborted."),
        ("Job aborted.\n  at a.B(C)\n  ... 3 more", "Job aborted."),
        ("Job aborted.\nTraceback\nValueError: 3\n", "Job aborted. … ValueError: 3"),
    ],
)
def test_the_failure_and_its_cause_are_quoted_without_java(
    said: str, quoted: str
) -> None:
    """Its stack is in Spark's log."""
    assert what_failed_and_why(RuntimeError(said)) == quoted
    ended = query_failed(RuntimeError(said)).saw
    assert ended == f"Spark ended the query: {quoted.split(' … ', maxsplit=1)[0]}"
