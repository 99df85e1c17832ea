"""``test``: runs linters, types, layers, unit tests, and tests on real servers.

The servers run in a temporary state directory, so that tests touch neither the user's
topics nor the user's tables. All servers are stopped at the end, however the suite
ends. The integration tests start them (``integration_tests/conftest.py``): a broker and
a Postgres for each process that runs tests.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Never

import typer

from tallyweir.services.cli.command import command
from tallyweir.services.cli.rendering import note, say

_PACKAGES = ("schemas", "sinks", "spark_jobs", "services")
_INTEGRATION = "integration_tests"
_CONTAINERS = "integration_tests/containers"
_PAGES = "integration_tests/pages"
_FAST = ("-m", "not slow and not spark and not long")
_SLOW = ("-m", "slow or spark or long")
_SLOW_NOT_LONG = ("-m", "(slow or spark) and not long")
_NOT_LONG = ("-m", "not long")
#: Tests without a server share nothing, so they can run in parallel.
_ON_ALL_CORES = ("-n", "auto", "--dist", "loadfile")
#: A test that runs on what others leave of the cores takes a multiple of its time.
_PATIENTLY = ("--timeout", "900")
#: Each lane has its own broker, Postgres and drivers, with at most about 2.5 GB of
#: memory. A lane that has nothing left takes over half of what the other has. A third
#: lane took away 3 % of the seconds.
_IN_TWO_LANES = ("-n", "2", "--dist", "worksteal")


class StepSkippedError(Exception):
    """A step needs something that is missing and cannot be installed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One program of the suite.

    Attributes:
        name: Name in the summary.
        command: Command line; its program is looked up in the virtual environment.
        runs_beside: It runs at a low priority beside the steps after it.
        runs_spark: Some of it starts Spark or the embedded servers.
        needs_images: It runs the images in a container engine.
        needs_chromium: It opens pages in a browser.
    """

    name: str
    command: tuple[str, ...]
    runs_beside: bool = False
    runs_spark: bool = False
    needs_images: bool = False
    needs_chromium: bool = False


@command(
    "tallyweir test",
    "tallyweir test --unit",
    "tallyweir test --all",
    "tallyweir test --containers --all",
    "tallyweir test --matrix",
    "tallyweir test -- -k fence -x",
    name="test",
    context_settings={"ignore_unknown_options": True},
)
def run_tests(
    pytest_arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="PYTEST_ARGUMENTS", show_default=False),
    ] = None,
    unit: Annotated[
        bool, typer.Option("--unit", help="Only fast tests that need no server.")
    ] = False,
    containers: Annotated[
        bool, typer.Option("--containers", help="Only tests that run the images.")
    ] = False,
    long: Annotated[bool, typer.Option("--all", help="Also the long tests.")] = False,
    matrix: Annotated[
        bool,
        typer.Option("--matrix", help="A few tests on every supported version."),
    ] = False,
) -> None:
    """Run the checks: lint, types, layers, unit, simulation, integration, pages.

    With --all, also the tests marked long, and the containers. With pytest arguments
    only the tests run, and only those that they choose. Of Debian's packages a Chromium
    is installed where there is none, and for the containers an engine where none
    answers; what cannot be had is said, and its step is skipped. The images are built
    first.
    """
    from tallyweir.services.local.embedded.virtual_environment import (
        DEVELOPMENT_LOCK,
        install,
    )

    install(DEVELOPMENT_LOCK)
    signal.signal(signal.SIGTERM, _end)
    started = time.monotonic()
    arguments = tuple(pytest_arguments or ())
    if matrix:
        from tallyweir.services.dev.version_matrix import run_matrix

        raise typer.Exit(0 if run_matrix(arguments, say) else 1)
    if containers:
        steps = [container_step(arguments, long=long)]
    else:
        steps = choose_steps(arguments, unit=unit, long=long)
    ended = _run_all(steps)
    failed = [one.name for one in ended if one.verdict.startswith("FAILED")]
    skipped = [f"{one.name} SKIPPED: {one.skipped}" for one in ended if one.skipped]
    say("")
    for one in ended:
        say(f"{one.name:<14}{one.verdict:<14}{one.seconds:6.1f} s")
    parts = [f"{one.name} {one.seconds:.0f}" for one in ended]
    seconds = f"{time.monotonic() - started:.0f} s: {', '.join(parts)}"
    for reason in skipped:
        say(f"tallyweir test: {reason}")
    if failed:
        say(f"tallyweir test: FAILED: {', '.join(failed)} ({seconds})")
        raise typer.Exit(1)
    passed = len(steps) - len(skipped)
    say(f"tallyweir test: passed, {passed} of {len(steps)} steps ({seconds})")


def choose_steps(
    pytest_arguments: tuple[str, ...], *, unit: bool, long: bool
) -> list[Step]:
    """Return the steps in order; cheap ones first, so that a typo is found early.

    Args:
        pytest_arguments: Arguments that choose some tests, including long ones.
        unit: Run only fast tests.
        long: Also run tests that take long.
    """
    there = tuple(p for p in (*_PACKAGES, _INTEGRATION) if (_root() / p).is_dir())
    if pytest_arguments:
        names_a_path = any(
            Path(argument.split("::")[0]).exists() for argument in pytest_arguments
        )
        everywhere = (*there, f"--ignore={_CONTAINERS}")
        chosen = () if names_a_path else (_PACKAGES if unit else everywhere)
        command = ("pytest", *chosen, *(_FAST if unit else ()), *pytest_arguments)
        return [Step(name="tests", command=command, runs_spark=not unit)]
    # The package has each module under its name; the folders at the root do not.
    typed = ("src", *(() if _INTEGRATION not in there else (_INTEGRATION,)))
    steps = [
        Step(name="ruff check", command=("ruff", "check", ".")),
        Step(name="ruff format", command=("ruff", "format", "--check", ".")),
        Step(name="mypy", command=("mypy", *typed), runs_beside=True),
        Step(name="lint-imports", command=("lint-imports",)),
    ]
    fast = ("pytest", *_PACKAGES, *_ON_ALL_CORES, *_FAST)
    steps.append(Step(name="unit", command=fast))
    if unit:
        return steps
    # Most of these tests simulate thousands of histories of the protocol.
    chosen = _SLOW if long else _SLOW_NOT_LONG
    slow = ("pytest", *_PACKAGES, *_PATIENTLY, *chosen)
    # At a low priority it takes what the lanes of the integration tests leave.
    steps.append(
        Step(name="simulation", command=slow, runs_beside=True, runs_spark=True)
    )
    if _INTEGRATION in there:
        everywhere = (_INTEGRATION, f"--ignore={_CONTAINERS}", f"--ignore={_PAGES}")
        steps.append(
            Step(
                name="integration",
                command=(
                    "pytest",
                    *everywhere,
                    *_IN_TWO_LANES,
                    *(() if long else _NOT_LONG),
                ),
                runs_spark=True,
            )
        )
        steps.append(
            Step(
                name="pages",
                command=("pytest", _PAGES, *_IN_TWO_LANES),
                runs_spark=True,
                needs_chromium=True,
            )
        )
        if long:
            steps.append(container_step((), long=True))
    return steps


def container_step(pytest_arguments: tuple[str, ...], *, long: bool) -> Step:
    """Return the step that runs the images.

    Args:
        pytest_arguments: Arguments that choose some tests.
        long: Also run tests that take long.
    """
    chosen = () if long else _NOT_LONG
    # These tests share one system, and each one depends on the tests before it.
    command = ("pytest", "-p", "no:randomly", _CONTAINERS, *chosen, *pytest_arguments)
    return Step(name="containers", command=command, needs_images=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ended:
    """What became of a step."""

    name: str
    verdict: str
    seconds: float
    skipped: str = ""


class _Beside:
    """A step that runs beside others and writes into a file meanwhile."""

    def __init__(self, step: Step, stack: ExitStack) -> None:
        self._step = step
        self._started = time.monotonic()
        self._seconds = 0.0
        output = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the stack
        self._output = stack.enter_context(output)
        environment = stack.enter_context(_environment(step))
        process = subprocess.Popen(
            ["/usr/bin/env", "nice", *_command(step)],
            cwd=_root(),
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        self._process = stack.enter_context(process)
        self._waiter = threading.Thread(target=self._wait)
        self._waiter.start()
        stack.callback(self._process.kill)

    def end(self) -> _Ended:
        """Wait until it has ended, and show what it wrote."""
        self._waiter.join()
        note(f"\n── {self._step.name}")
        self._output.seek(0)
        note(self._output.read())
        verdict = _verdict(self._process.returncode)
        return _Ended(name=self._step.name, verdict=verdict, seconds=self._seconds)

    def _wait(self) -> None:
        self._process.wait()
        self._seconds = time.monotonic() - self._started


def _run_all(steps: Sequence[Step]) -> list[_Ended]:
    """Run the steps; return them in the order in which they were reported."""
    with ExitStack() as stack:
        beside = []
        ended = []
        for step in steps:
            if step.runs_beside:
                beside.append(_Beside(step, stack))
            else:
                ended.append(_run(step))
        return ended + [one.end() for one in beside]


def _run(step: Step) -> _Ended:
    note(f"\n── {step.name}")
    before = time.monotonic()
    skipped = ""
    try:
        with _environment(step) as environment:
            command = _command(step)
            # If pytest finds no test, that is a failure too: a path may be misspelt.
            ran = subprocess.run(command, cwd=_root(), env=environment, check=False)
        verdict = _verdict(ran.returncode)
    except StepSkippedError as why:
        verdict, skipped = "SKIPPED", str(why)
    return _Ended(
        name=step.name,
        verdict=verdict,
        seconds=time.monotonic() - before,
        skipped=skipped,
    )


def _verdict(code: int) -> str:
    return "ok" if code == 0 else f"FAILED ({code})"


def _command(step: Step) -> list[str]:
    program = Path(sys.executable).parent / step.command[0]
    return [str(program), *step.command[1:]]


@contextmanager
def _environment(step: Step) -> Iterator[Mapping[str, str]]:
    """Provide what a step needs, and the environment in which it finds it."""
    if step.needs_chromium:
        from tallyweir.services.dev.debian_packages import why_no_chromium

        reason = why_no_chromium()
        if reason is not None:
            raise StepSkippedError(reason)
    with ExitStack() as stack:
        if step.needs_images:
            stack.enter_context(_images())
        yield stack.enter_context(temporary_state()) if step.runs_spark else os.environ


@contextmanager
def _images() -> Iterator[None]:
    from tallyweir.services.dev.images.build import build_images, registry_answers
    from tallyweir.services.dev.images.engine import container_engine

    with container_engine() as reason:
        if reason is not None:
            raise StepSkippedError(reason)
        for image in build_images(uses_stand_ins=not registry_answers(), tell=note):
            note(f"{image.name}: {image.size_b / 1e6:,.0f} MB")
        yield


@contextmanager
def temporary_state() -> Iterator[dict[str, str]]:
    """Provide an environment for Spark and servers; stop all servers at the end."""
    from tallyweir.services.local.embedded.kafka import EmbeddedKafka
    from tallyweir.services.local.embedded.postgres import EmbeddedPostgres
    from tallyweir.services.local.embedded.state_directory import (
        STATE_DIRECTORY_VARIABLE,
        share_fetched,
    )
    from tallyweir.services.process.endpoints import spark_environment

    environment = spark_environment()
    with tempfile.TemporaryDirectory(prefix="tallyweir-test-") as temporary:
        share_fetched(Path(temporary))
        try:
            yield environment | {STATE_DIRECTORY_VARIABLE: temporary}
        finally:
            # Killed tests have not stopped their servers.
            for lane in Path(temporary).glob("lane-*"):
                EmbeddedKafka(lane / "kafka").stop()
                EmbeddedPostgres(lane / "postgres").stop()


def _root() -> Path:
    from tallyweir.services.local.embedded.state_directory import ROOT

    return ROOT


def _end(signal_number: int, _frame: object) -> Never:
    sys.exit(128 + signal_number)
