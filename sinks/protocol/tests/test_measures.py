"""How what tasks have measured is put together."""

from __future__ import annotations

from tallyweir.sinks.protocol.measures import (
    UNNAMED_KEPT,
    Measures,
    StepMeasure,
    cpu_of_tasks,
    measures_json,
    parse_measures,
    sum_measures,
)


def _of_a_task(seconds: float, rows: int) -> Measures:
    step = StepMeasure(
        seconds=seconds, seconds_max=seconds, cpu_seconds=0.5, rows_in=rows, tasks=1
    )
    return Measures(steps={"decode": step}, task_seconds=(seconds,))


def test_steps_of_tasks_add_up_and_the_slowest_stands_out() -> None:
    """Seconds and rows are sums; the greatest of one task is kept beside them."""
    measures = sum_measures([_of_a_task(1, 10), _of_a_task(3, 30)])
    assert measures.steps["decode"] == StepMeasure(
        seconds=4, seconds_max=3, cpu_seconds=1, rows_in=40, tasks=2
    )
    assert measures.task_seconds == (1, 3)
    assert cpu_of_tasks([measures]).cpu_seconds == {"tasks": 1}


def test_fields_that_nobody_named_add_up_and_stay_few() -> None:
    """A document whose keys are data cannot fill the ledger."""
    tasks = [
        Measures(unnamed={"coupon": 2, **{f"id {task}{n}": 1 for n in range(60)}})
        for task in range(3)
    ]
    added = sum_measures(tasks)
    assert UNNAMED_KEPT == len(added.unnamed)
    assert 6 == added.unnamed["coupon"]
    assert added == parse_measures(measures_json(added))


def test_what_is_nothing_is_not_written() -> None:
    """A ledger at 27 batches a second is kept short."""
    assert measures_json(Measures()) == {}
    written = measures_json(Measures(steps={"read": StepMeasure(rows_out=3)}))
    assert written == {"steps": {"read": {"rows_out": 3}}}


def test_fields_that_are_not_known_are_passed_by() -> None:
    """A driver of a newer version may have written them."""
    read = parse_measures({"steps": {"read": {"rows_out": 3, "new": 1}}, "newer": {}})
    assert read == Measures(steps={"read": StepMeasure(rows_out=3)})
