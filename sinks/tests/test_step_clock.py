"""What a clock of steps counts, and what it leaves to the steps inside."""

from __future__ import annotations

import pytest

from tallyweir.sinks import step_clock
from tallyweir.sinks.step_clock import StepClock


class _Time:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = self.cpu = 0.0

    def perf_counter(self) -> float:
        return self.now

    def thread_time(self) -> float:
        return self.cpu


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> _Time:
    """Stands for the process's clocks."""
    made = _Time()
    monkeypatch.setattr(step_clock, "time", made)
    return made


def test_a_second_counts_for_the_innermost_step_only(time: _Time) -> None:
    """So the seconds of all steps add up to the task's."""
    clock = StepClock()
    with clock.spent_on("outer"):
        time.now += 1
        with clock.spent_on("inner"):
            time.now += 2
            time.cpu += 0.5
        time.now += 4
    measures = clock.measures()
    assert measures.steps["outer"].seconds == 5
    assert measures.steps["inner"].seconds == 2
    assert measures.steps["inner"].cpu_seconds == 0.5
    assert measures.steps["outer"].cpu_seconds == 0
    assert measures.task_seconds == (7,)


def test_time_between_steps_is_no_steps(time: _Time) -> None:
    """And a step that is entered again goes on from where it was."""
    clock = StepClock()
    for _ in range(2):
        time.now += 10
        with clock.spent_on("step"):
            time.now += 1
    assert clock.seconds() == {"step": 2}


def test_a_step_that_fails_is_counted(time: _Time) -> None:
    """The clock of the step around it goes on."""
    clock = StepClock()

    def fail() -> None:
        with clock.spent_on("inner"):
            time.now += 3
            raise ValueError("no")

    with clock.spent_on("outer"):
        with pytest.raises(ValueError, match="no"):
            fail()
        time.now += 1
    assert clock.seconds() == {"outer": 1, "inner": 3}
