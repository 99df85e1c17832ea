"""A part that fails takes nothing else with it, and is not hidden."""

from __future__ import annotations

import pytest

from tallyweir.services.dev.bench.world.bench_world import failure_told, incomplete_run


def test_a_part_that_fails_is_told_and_the_others_go_on() -> None:
    """What was measured in minutes is not lost to what comes after it."""
    failed: dict[str, str] = {}
    lines: list[str] = []
    for part in ("first", "second", "third"):
        with failure_told(failed, part, lines.append):
            if part == "second":
                raise incomplete_run("It stood still.", fix="Look.")
            lines.append(part)
    assert failed == {"second": "BENCH_INCOMPLETE: It stood still."}
    assert lines == [
        "first",
        "second has no figure, BENCH_INCOMPLETE: It stood still.",
        "third",
    ]


def test_a_mistake_of_the_benchmark_itself_is_no_figure_that_is_missing() -> None:
    """It ends the run."""
    with pytest.raises(ZeroDivisionError), failure_told({}, "part", print):
        _ = 1 / 0
