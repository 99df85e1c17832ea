"""Relays in processes of their own, which a test pauses and kills."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

from integration_tests.harness.relayed_home import DEADLINE_S, RelayedHome


class RelayProcess:
    """A relay of its own process, as ``relay_process`` describes."""

    def __init__(
        self, home: RelayedHome, moment: str | None = None, kind: str = "SIGKILL"
    ) -> None:
        orders = {
            "home": home.dsn,
            "kafka": home.bootstrap,
            "moment": moment,
            "signal": kind,
        }
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "integration_tests.harness.relay_process"),
                json.dumps(orders),
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        self._lines: queue.Queue[dict[str, Any]] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr:
            for line in self.process.stderr:
                self._lines.put(json.loads(line))

    def wait_for_event(self, event: str) -> dict[str, Any]:
        """Return the next line of that event."""
        while True:
            line = self._lines.get(timeout=DEADLINE_S)
            if line["event"] == event:
                return line

    def wait_until_stopped(self) -> None:
        """Wait for SIGSTOP to have taken hold."""
        _, status = os.waitpid(self.process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)

    def wake(self) -> None:
        """Let it go on."""
        self.process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait()
        self._reader.join()


@contextlib.contextmanager
def relay(
    home: RelayedHome, moment: str | None = None, kind: str = "SIGKILL"
) -> Iterator[RelayProcess]:
    """Run a relay in the block."""
    process = RelayProcess(home, moment, kind)
    try:
        yield process
    finally:
        process.end()
