"""A driver and a batch run in a terminal, from a clone in a path with a space."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from integration_tests.harness.driver_world import DriverWorld, numbered
from integration_tests.harness.terminal import Terminal
from tallyweir.services.local.embedded.state_directory import ROOT, share_fetched

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_COUNT = "SELECT count(*) FROM readings"


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository under another path; its environment is ours."""
    clone = tmp_path_factory.mktemp("where") / "a clone, that's é"
    left_out = (".git", ".venv", ".tallyweir", ".*_cache", "__pycache__")
    ignore = shutil.ignore_patterns(*left_out)
    shutil.copytree(ROOT, clone, symlinks=True, ignore=ignore)
    (clone / ".venv").symlink_to(ROOT / ".venv")
    return clone


class _Shell:
    """Starts commands in a world, whose directories have spaces in their names."""

    def __init__(self, world: DriverWorld, clone: Path) -> None:
        self.world = world
        self._clone = clone
        self._state = world.directory / "a state"
        self._state.mkdir()
        share_fetched(self._state)

    def type(self, *arguments: str) -> Terminal:
        environment = {
            **os.environ,
            "PYTHONPATH": str(self._clone / "src"),
            "TALLYWEIR_KAFKA_BOOTSTRAP": self.world.topic.bootstrap,
            "TALLYWEIR_HOME_DSN": self.world.home_dsn,
            "TALLYWEIR_STATE_DIR": str(self._state),
            "TALLYWEIR_SPARK_MASTER": "local[2]",
            # Python workers of Spark's get the signal as well.
            "TALLYWEIR_SMALL_BATCH_OFFSETS_MAX": "0",
        }
        program = [sys.executable, "-P", "-m", "tallyweir.services.cli"]
        return Terminal([*program, *arguments], self.world.directory, environment)

    def run(self) -> Terminal:
        return self.type("run", str(self.world.pipeline_file))


@pytest.fixture
def shell(tmp_path: Path, kafka_bootstrap: str, empty_dsn: str, clone: Path) -> _Shell:
    """A topic with ten readings, and no driver yet."""
    directory = tmp_path / "my files"
    directory.mkdir()
    world = DriverWorld(directory, kafka_bootstrap, empty_dsn)
    world.topic.send(numbered(world, 0, 10))
    return _Shell(world, clone)


@contextmanager
def _held_table(world: DriverWorld) -> Iterator[None]:
    """Let no batch be published."""
    with psycopg.connect(world.home_dsn) as holder:
        holder.execute("LOCK TABLE readings")
        yield


def test_the_launcher_starts_from_a_path_with_a_space(clone: Path) -> None:
    """It finds its environment and its packages beside itself."""
    done = subprocess.run(
        [str(clone / "tallyweir"), "run", "--help"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (0, True) == (done.returncode, "Pipeline file." in done.stdout), done.stderr


def test_ctrl_c_drains_a_driver(shell: _Shell) -> None:
    """The batch at hand is published whole, and no process shows a stack trace."""
    world = shell.world
    with shell.run() as terminal:
        terminal.await_text("batch published")
        with _held_table(world):
            world.topic.send(numbered(world, 10, 10))
            world.await_value(
                "SELECT count(*) FROM pg_locks WHERE NOT granted", lambda n: n > 0
            )
            terminal.press_ctrl_c()
            terminal.await_text("stopping after the batch at hand")
        assert 0 == terminal.wait(), terminal.text
    assert "Traceback" not in terminal.text
    assert 20 == world.value(_COUNT)
    world.assert_verified()


@pytest.mark.long
def test_a_second_ctrl_c_does_not_wait(shell: _Shell) -> None:
    """It leaves what a kill leaves; the next driver, interrupted early, is drained."""
    world = shell.world
    with shell.run() as terminal:
        terminal.await_text("batch published")
        with _held_table(world):
            world.topic.send(numbered(world, 10, 10))
            world.await_value(
                "SELECT count(*) FROM pg_locks WHERE NOT granted", lambda n: n > 0
            )
            terminal.press_ctrl_c()
            terminal.await_text("stopping after the batch at hand")
            terminal.press_ctrl_c()
            assert 130 == terminal.wait(), terminal.text
    assert "Traceback" not in terminal.text
    with shell.run() as terminal:
        terminal.await_program("tallyweir.spark_jobs")
        terminal.await_child("java")
        terminal.press_ctrl_c()
        assert 0 == terminal.wait(), terminal.text
    assert "Traceback" not in terminal.text
    world.run_to_the_end()
    assert 20 == world.value(_COUNT)
    world.assert_verified()


def test_ctrl_c_drains_a_driver_that_has_hardly_begun(shell: _Shell) -> None:
    """Long before there is a JVM, or anything but Python that starts."""
    with shell.run() as terminal:
        terminal.await_program("tallyweir.spark_jobs")
        terminal.press_ctrl_c()
        assert 0 == terminal.wait(), terminal.text
    assert "Traceback" not in terminal.text


@pytest.mark.long
def test_ctrl_c_ends_a_batch_run_that_can_be_done_again(shell: _Shell) -> None:
    """At once, without a stack trace; nothing of it is in the tables."""
    offsets = f"{shell.world.topic.name}:0:0-5"
    arguments = ("batch", str(shell.world.pipeline_file), "--run", "r")
    with shell.type(*arguments, "--offsets", offsets) as terminal:
        terminal.await_program("tallyweir.spark_jobs.batch")
        terminal.await_child("java")
        terminal.press_ctrl_c()
        assert 130 == terminal.wait(), terminal.text
    assert "the same command finishes the run" in terminal.text
    assert "Traceback" not in terminal.text
    with shell.type(*arguments, "--offsets", offsets) as terminal:
        assert 0 == terminal.wait(), terminal.text
    assert 5 == shell.world.value(_COUNT)
