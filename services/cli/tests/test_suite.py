"""Which steps ``tallyweir test`` runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tallyweir.services.cli.dev.suite import choose_steps, container_step

_ROOT = Path(__file__).parents[3]
_MARKER = "mark." + "long"
_LISTED = r"^\| \[(\S+\.py)\]\(\S+\) \| (\d+) \| ~?[\d.]+ \|$"
_OTHER = "services/cli/tests/test_rendering.py"


def test_the_whole_suite_lints_before_it_starts_servers() -> None:
    """What is cheap comes first, and only tests run Spark and servers."""
    steps = choose_steps((), unit=False, long=False)

    assert [step.name for step in steps[:5]] == [
        "ruff check",
        "ruff format",
        "mypy",
        "lint-imports",
        "unit",
    ]
    assert all(not step.runs_spark for step in steps[:5])
    assert [step.name for step in steps[5:]] == ["simulation", "integration", "pages"]
    assert all(step.runs_spark for step in steps[5:])
    assert [step.name for step in steps if step.needs_chromium] == ["pages"]
    assert [step.name for step in steps if step.runs_beside] == ["mypy", "simulation"]


def test_long_tests_run_only_when_asked_for() -> None:
    """The whole suite has to end while somebody waits for it."""
    chosen = choose_steps((), unit=False, long=False)[5:]
    assert ["simulation", "integration"] == [
        step.name for step in chosen if "not long" in step.command[-1]
    ]
    assert not any(step.needs_images for step in chosen)
    simulation, integration, pages, containers = choose_steps(
        (), unit=False, long=True
    )[5:]
    assert pages in chosen

    assert simulation.command[-1] == "slow or spark or long"
    assert "-m" not in integration.command
    assert containers == container_step((), long=True)
    assert "-m" not in containers.command


def test_what_all_adds_is_listed() -> None:
    """Nobody should think that a change was held to a test that did not run."""
    folders = ("schemas", "sinks", "spark_jobs", "services", "integration_tests")
    marked = {
        str(file.relative_to(_ROOT)): marks
        for folder in folders
        for file in (_ROOT / folder).rglob("test_*.py")
        if (marks := file.read_text().count(_MARKER))
    }
    page = (_ROOT / "docs" / "testing.md").read_text()
    rows = re.findall(_LISTED, page, re.MULTILINE)
    assert marked == {file: int(marks) for file, marks in rows}


def test_unit_needs_no_server_and_leaves_out_what_is_slow() -> None:
    """The run that developers repeat stays under half a minute."""
    steps = choose_steps((), unit=True, long=False)

    assert not any(step.runs_spark for step in steps)
    assert "not slow and not spark and not long" in steps[-1].command


def test_what_unit_leaves_out_has_a_step_of_its_own() -> None:
    """Together both run every test of the packages that does not take long."""
    _, _, _, _, unit, simulation, *_ = choose_steps((), unit=False, long=False)

    assert unit == choose_steps((), unit=True, long=False)[-1]
    patiently = ("--timeout", "900")
    assert {*simulation.command[:-1]} - {*patiently} <= {*unit.command[:-1]}
    assert "not slow and not spark and not long" == unit.command[-1]
    assert "(slow or spark) and not long" == simulation.command[-1]


def test_pytest_arguments_choose_the_tests_and_skip_the_linters() -> None:
    """Who names a test wants that test, now."""
    (step,) = choose_steps(("-k", "fence"), unit=False, long=False)

    assert step.command[-2:] == ("-k", "fence")
    assert "services" in step.command


def test_a_named_path_replaces_the_default_ones() -> None:
    """Naming one file does not run everything else beside it."""
    (step,) = choose_steps((f"{__file__}::test_x",), unit=True, long=False)

    assert "services" not in step.command


@pytest.mark.parametrize(
    "selection",
    [(_OTHER, "services/no_such_test.py", "-n", "1"), (_OTHER, "-k", "no_such")],
)
def test_a_selection_without_tests_fails(selection: tuple[str, ...]) -> None:
    """Of two paths one may not exist, which pytest on several cores passes over."""
    command = (
        sys.executable,
        "-m",
        "tallyweir.services.cli",
        "test",
        "--unit",
        "--",
        *selection,
    )
    ended = subprocess.run(
        command, cwd=_ROOT, capture_output=True, text=True, check=False
    )
    assert 1 == ended.returncode
    assert "FAILED: tests" in ended.stdout
