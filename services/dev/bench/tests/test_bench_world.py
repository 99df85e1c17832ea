"""A part that fails takes nothing else with it, and is not hidden."""

from __future__ import annotations

import pytest
import typer

from tallyweir.services.cli.dev.bench import _end
from tallyweir.services.dev.bench.world.bench_world import failure_told, incomplete_run
from tallyweir.sinks.protocol.errors import FatalError


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


def test_a_run_with_a_part_that_failed_is_no_success() -> None:
    """Whoever only looks at the exit code is not told that all was measured."""
    with pytest.raises(typer.Exit) as ended:
        _end({"failed": {"second": "BENCH_INCOMPLETE: It stood still."}})
    assert ended.value.exit_code == FatalError.exit_code
    _end({"failed": {}})
    _end({})
