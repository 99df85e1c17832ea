"""A process with Spark in which drivers of many tests read their topics to the end.

Spark takes most of a driver's start. A driver that a test kills, stops or watches has a
process of its own: ``WatchedDriver``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from integration_tests.harness.watched_driver import START_TIMEOUT_S
from tallyweir.services.local.embedded.state_directory import state_directory
from tallyweir.services.process.driver_process import end_session

#: Spark reads variables whose names begin so when it starts.
_SPARKS = (
    *("SPARK", "PYSPARK", "PYTHON", "JAVA", "PATH", "HOME", "TZ", "LANG", "LC_"),
    *("TALLYWEIR_SPARK", "TALLYWEIR_CLASS", "TALLYWEIR_PROFILE", "TALLYWEIR_DRIVER"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedDriver:
    """What a driver wrote to stderr, line by line, and its exit code."""

    lines: Sequence[str]
    code: int

    @property
    def text(self) -> str:
        """Everything that it wrote."""
        return "\n".join(self.lines)

    def logged(self, event: str) -> dict[str, Any]:
        """Return its first log line of that event."""
        lines = (json.loads(line) for line in self.lines if line.startswith("{"))
        found: dict[str, Any] = next(line for line in lines if line["event"] == event)
        return found


class KeptSpark:
    """The process, from its first driver on."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._variables: Mapping[str, str] = {}

    def run(
        self, arguments: Sequence[str], environment: Mapping[str, str]
    ) -> EndedDriver:
        """Run a driver to its end; with ``--run``, a batch run.

        A driver whose Spark would read other variables than the one that runs gets
        another Spark.

        Args:
            arguments: Of its command.
            environment: All of its variables.
        """
        variables = {k: v for k, v in environment.items() if k.startswith(_SPARKS)}
        if self._process is None or self._variables != variables:
            self.end()
            self._start(variables)
        with tempfile.NamedTemporaryFile("r", errors="replace") as file:
            code = self._ask([[*arguments], dict(environment), file.name])
            told = EndedDriver(lines=file.read().splitlines(), code=code or 0)
        if code is None:
            self.end()
            raise AssertionError(f"the driver failed, or did not end:\n{told.text}")
        return told

    def end(self) -> None:
        """End the process and its JVM, if they run."""
        if self._process is not None:
            _kill(self._process)
            with self._process:
                end_session(self._process.pid)
            self._process = None

    def _start(self, variables: Mapping[str, str]) -> None:
        state = state_directory() / "kept-spark"
        self._variables = variables
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m"),
                *("integration_tests.harness.drivers_in_turn", str(state)),
            ],
            env=dict(variables),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def _ask(self, driver: Sequence[object]) -> int | None:
        """Have it run a driver; return the exit code, or None if there is none."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        patience = threading.Timer(START_TIMEOUT_S, _kill, [self._process])
        patience.start()
        try:
            self._process.stdin.write(f"{json.dumps(driver)}\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        finally:
            patience.cancel()
        code: int | None = json.loads(answer or "null")
        return code


def _kill(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


#: Of all tests of this process; ``lane`` in ``conftest.py`` ends it.
KEPT_SPARK = KeptSpark()
