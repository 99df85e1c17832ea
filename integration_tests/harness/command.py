"""A ``tallyweir`` command with a state directory of its own, as users start it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest

from tallyweir.services.local.embedded.state_directory import (
    ROOT,
    STATE_DIRECTORY_VARIABLE,
    share_fetched,
)
from tallyweir.services.process.endpoints import KAFKA_VARIABLE
from tallyweir.sinks.settings import HOME_DSN_VARIABLE

_RUN_TIMEOUT_S = 300.0


class Command:
    """One command, such as ``demo``.

    Args:
        name: What users type.
        directory: Empty; becomes its state directory.
    """

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.directory = directory
        share_fetched(directory)

    def start(self, *options: str, **variables: str) -> subprocess.Popen[str]:
        """Start it; it brings its own servers unless ``variables`` name some."""
        inherited = {
            name: value
            for name, value in os.environ.items()
            if name not in {HOME_DSN_VARIABLE, KAFKA_VARIABLE}
            and not name.startswith("PG")
        }
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "tallyweir.services.cli", self.name, *options],
            cwd=ROOT,
            env={
                **inherited,
                "PYTHONPATH": str(ROOT / "src"),
                STATE_DIRECTORY_VARIABLE: str(self.directory),
                **variables,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def processes(self) -> list[psutil.Process]:
        """Whatever still runs in the state directory."""
        found = []
        for process in psutil.process_iter():
            try:
                command, place = process.cmdline(), process.cwd()
                variables = process.environ()
            except psutil.Error:
                continue
            told = variables.get(STATE_DIRECTORY_VARIABLE, "")
            words = [*command, place, told]
            if any(str(self.directory) in word for word in words):
                found.append(process)
        return found


def run_command(
    *words: str, variables: Mapping[str, str], directory: Path = ROOT, code: int = 0
) -> str:
    """Run a command, which must end with a code, and return what it says on stdout."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "tallyweir.services.cli", *words],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=_RUN_TIMEOUT_S,
    )
    assert done.returncode == code, done.stderr
    return done.stdout


def signal_at(
    process: subprocess.Popen[str], words: str, number: signal.Signals
) -> None:
    """Send the signal as soon as the command has said the words."""
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            process.send_signal(number)
            return
    pytest.fail(f"the command ended before it said {words!r}")
