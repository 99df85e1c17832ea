"""A driver's end is noticed, explained, and complete."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil
import pytest

from tallyweir.services.process import driver_process
from tallyweir.services.process.driver_process import DriverProcess, stop_leftovers
from tallyweir.sinks.protocol.errors import FatalError

# Stands in for the driver: the module of that name comes first on its path. Its child
# changes its group, as Spark's Python workers do, but not its session.
STAND_IN = """
import json, os, signal, subprocess, sys, time
say = lambda **event: print(json.dumps(event), file=sys.stderr, flush=True)
print("WARN not an event", file=sys.stderr)
child = subprocess.Popen(["sleep", "600"], process_group=0)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(int(os.environ["CODE"])))
say(event="driver started", child=child.pid)
if os.environ.get("ENDS"):
    sys.exit(78)
time.sleep(600)
"""


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An environment in which ``python -m tallyweir.spark_jobs`` is the stand-in."""
    (tmp_path / "tallyweir").mkdir()
    (tmp_path / "tallyweir" / "__init__.py").touch()
    (tmp_path / "tallyweir" / "spark_jobs.py").write_text(STAND_IN)
    monkeypatch.setattr(driver_process, "_LEAVE_TIMEOUT_S", 0.2)
    return {**os.environ, "PYTHONPATH": str(tmp_path), "CODE": "0"}


def started(driver: DriverProcess) -> int:
    """Wait for the first event; return the child's process number."""
    event = driver.next_event(30)
    assert event is not None
    assert event["event"] == "driver started"
    return int(event["child"])


def is_running(number: int) -> bool:
    """Whether a process is there and not just its unread exit code."""
    try:
        return psutil.Process(number).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_nothing_of_a_killed_driver_survives_its_block(
    environment: dict[str, str],
) -> None:
    """A worker that left the driver's process group is ended as well."""
    with DriverProcess(Path("p.yaml"), environment) as driver:
        child = started(driver)
        driver.kill()
    assert not is_running(child)


def test_an_error_in_the_block_ends_the_driver(environment: dict[str, str]) -> None:
    """Whatever ends a demo ends its driver."""
    children = []

    def interrupted() -> None:
        with DriverProcess(Path("p.yaml"), environment) as driver:
            children.append(started(driver))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not is_running(children[0])


def test_a_silent_driver_is_waited_for_until_the_time_is_up(
    environment: dict[str, str],
) -> None:
    """No event in time is an answer, not an error."""
    with DriverProcess(Path("p.yaml"), environment) as driver:
        started(driver)
        before = time.monotonic()
        assert driver.next_event(0.3) is None
        assert time.monotonic() - before >= 0.3


def test_a_driver_that_ends_by_itself_shows_its_lines(
    environment: dict[str, str],
) -> None:
    """Its last words are the only hint at what is wrong; its events come first."""
    with DriverProcess(Path("p.yaml"), {**environment, "ENDS": "1"}) as driver:
        # The child must not hold the pipe, or the end of the lines is not seen.
        psutil.Process(started(driver)).kill()
        with pytest.raises(FatalError) as caught:
            driver.next_event(30)
    assert caught.value.code == "DRIVER_FAILED"
    assert "exit code 78" in caught.value.saw
    assert "WARN not an event" in caught.value.saw


def test_draining_demands_exit_code_zero(environment: dict[str, str]) -> None:
    """A driver that stops with an error has not drained."""
    with DriverProcess(Path("p.yaml"), environment) as driver:
        started(driver)
        driver.drain()
    with DriverProcess(Path("p.yaml"), {**environment, "CODE": "70"}) as driver:
        started(driver)
        with pytest.raises(FatalError, match="exit code 70"):
            driver.drain()


def test_leftovers_of_a_pipeline_file_are_stopped_and_no_others(
    environment: dict[str, str], tmp_path: Path
) -> None:
    """A demo ends what a killed one left, by the path of its own pipeline file."""
    ours, other = tmp_path / "ours.yaml", tmp_path / "other.yaml"
    with (
        DriverProcess(ours, environment) as left,
        DriverProcess(other, environment) as alien,
    ):
        child, alien_child = started(left), started(alien)
        stop_leftovers(ours)
        assert not is_running(child)
        assert is_running(alien_child)
