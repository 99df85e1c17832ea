"""What of Spark's count of its Python workers' time is the pipeline's."""

from __future__ import annotations

from tallyweir.spark_jobs.frame.python_time import worked_ms


def test_a_worker_that_begins_is_no_work() -> None:
    """It loads libraries and the function before it has a row."""
    assert worked_ms(total=5_000, boot=900, init=300) == 3_800


def test_what_a_worker_has_idled_is_not_taken_off_its_work() -> None:
    """It began long before its task, which Spark counts as if it got ready."""
    assert worked_ms(total=5_000, boot=0, init=4_000) == 5_000


def test_no_worker_worked_for_less_than_nothing() -> None:
    """One has just begun, and another idled for longer than both have worked."""
    assert worked_ms(total=2_000, boot=500, init=9_000) == 0
