"""Alerts services as users start them, each in a process of its own."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tallyweir.services.local.embedded.state_directory import ROOT

DEADLINE_S = 60.0


class AlertProcess:
    """A service that runs until it is ended."""

    def __init__(self, command: list[str], environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "tallyweir.services.cli", "alerts"),
                *command,
            ],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment},
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[dict[str, Any]] = []
        self._events: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr:
            for line in self._process.stderr:
                if line.startswith("{"):
                    self.lines.append(json.loads(line))
                    self._events.put(self.lines[-1]["event"])

    def wait_for_event(self, event: str) -> None:
        """Read on until a line tells of it."""
        while self._events.get(timeout=DEADLINE_S) != event:
            pass

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it, and return its exit code."""
        self._process.send_signal(number)
        code = self._process.wait(DEADLINE_S)
        self._reader.join()
        return code


@contextmanager
def alert_process(
    rules: Path, dsn: str, bootstrap: str, environment: Mapping[str, str]
) -> Iterator[AlertProcess]:
    """Run a service in the block."""
    process = AlertProcess(
        ["--rules", str(rules)],
        {
            "TALLYWEIR_HOME_DSN": dsn,
            "TALLYWEIR_KAFKA_BOOTSTRAP": bootstrap,
            **environment,
        },
    )
    try:
        yield process
    finally:
        if process._process.poll() is None:
            process.end(signal.SIGKILL)
