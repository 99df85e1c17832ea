"""What a killed run left in its directory is gone before the next one begins."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tallyweir.services.dev.cleared_directory import cleared_directory
from tallyweir.services.local.embedded.state_directory import STATE_DIRECTORY_VARIABLE
from tallyweir.services.process import driver_process


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory that runs clear; its lock is held by nobody."""
    monkeypatch.setenv(STATE_DIRECTORY_VARIABLE, str(tmp_path))
    monkeypatch.setattr(driver_process, "_LEAVE_TIMEOUT_S", 0.2)
    with cleared_directory("trials") as directory:
        return directory


def test_only_the_lock_of_an_earlier_run_stays(directory: Path) -> None:
    """A process that waits for the lock waits for this very file."""
    (directory / "trial" / "checkpoints").mkdir(parents=True)
    (directory / "trial" / "checkpoints" / "metadata").touch()
    (directory / "events.avsc").touch()
    with cleared_directory("trials"):
        assert [file.name for file in directory.iterdir()] == ["lock"]


@pytest.mark.parametrize("name", ["orders.yaml", "trial/orders.py"])
def test_a_driver_of_an_earlier_run_is_ended(directory: Path, name: str) -> None:
    """It would write into the databases of the next run."""
    file = directory / name
    file.parent.mkdir(exist_ok=True)
    file.touch()
    program = "import signal; signal.pause()"
    driver = subprocess.Popen(
        [sys.executable, "-c", program, str(file)], start_new_session=True
    )
    with driver:
        try:
            with cleared_directory("trials"):
                driver.wait(timeout=30)
        finally:
            driver.kill()
