"""Samples of several tasks, put together."""

from __future__ import annotations

from tallyweir.sinks.protocol.samples import (
    SampledRow,
    Samples,
    StepSample,
    join_samples,
)


def _row(name: str) -> SampledRow:
    return SampledRow(fields=(("n", name),))


def _samples(*names: str, step: str = "decode", output: str = "") -> Samples:
    rows = tuple(map(_row, names))
    return Samples(limit=3, steps=(StepSample(step=step, output=output, rows=rows),))


def test_each_task_has_a_share_and_no_step_has_more_than_its_limit() -> None:
    """So no partition hides the others, however many rows it has."""
    joined = join_samples((_samples("a3", "a2", "a1"), _samples("b1"), _samples("c1")))
    (step,) = joined.steps
    assert [row.fields[0][1] for row in step.rows] == ["a3", "b1", "c1"]
    joined = join_samples((_samples("a3", "a2", "a1"), _samples("b1")))
    assert [row.fields[0][1] for row in joined.steps[0].rows] == ["a3", "b1", "a2"]


def test_steps_and_outputs_are_kept_apart() -> None:
    """And nothing is lost by a task that has kept nothing."""
    joined = join_samples(
        (
            Samples(),
            _samples("a", step="stage", output="x"),
            _samples("b", step="stage", output="y"),
        )
    )
    assert joined.limit == 3
    assert [(one.output, len(one.rows)) for one in joined.steps] == [("x", 1), ("y", 1)]


def test_what_any_task_left_out_is_told() -> None:
    """Tasks whose rows are of different contracts have different fields."""
    parts = (("b", "a"), ("a", "c"))
    joined = join_samples(
        Samples(limit=1, steps=(StepSample(step="stage", redacted=one),))
        for one in parts
    )
    assert joined.steps[0].redacted == ("b", "a", "c")
