"""A driver as users run it: a process of its own, with its lines and its exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import psutil

from tallyweir.services.process.driver_process import DriverProcess

_ROOT = Path(__file__).parents[2]
_WORKER = "pyspark.worker"

#: A driver needs about ten seconds to its first batch; CI machines are slower.
START_TIMEOUT_S = 180.0


class WatchedDriver(DriverProcess):
    """A driver of which a test sees every line, and which it can damage."""

    lines_kept: ClassVar[int | None] = None

    def __init__(  # noqa: PLR0913 - each names a part of the driver's world
        self,
        pipeline_file: Path,
        *,
        kafka_bootstrap: str,
        home_dsn: str,
        state_directory: Path,
        once: bool = False,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        module: str = "tallyweir.spark_jobs",
    ) -> None:
        super().__init__(
            pipeline_file,
            driver_environment(
                kafka_bootstrap=kafka_bootstrap,
                home_dsn=home_dsn,
                state_directory=state_directory,
                settings=environment or {},
            ),
            arguments=[*arguments, *(["--once"] if once else [])],
            module=module,
        )

    def wait_for(
        self, event: str, *, timeout_s: float = START_TIMEOUT_S
    ) -> dict[str, Any]:
        """Return the next log line of that event; fail when the driver ends first."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = self.next_event(max(0.0, deadline - time.monotonic()))
            assert found is not None, self._report(f"no {event!r}")
            if found["event"] == event:
                return found

    def mark(self) -> None:
        """Forget the lines so far: ``wait_for`` returns what is logged from now on."""
        self.take_events()

    def wait_until_stopped(self) -> None:
        """Return once a fault has stopped the driver, which goes on at SIGCONT."""
        deadline = time.monotonic() + START_TIMEOUT_S
        options = os.WSTOPPED | os.WNOHANG
        while os.waitid(os.P_PID, self._process.pid, options) is None:
            assert time.monotonic() < deadline, self._report("did not stop")
            time.sleep(0.05)

    def wait(self, *, timeout_s: float = START_TIMEOUT_S) -> int:
        """Return the exit code once the driver has ended."""
        try:
            code = self._process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(self._report("did not end")) from None
        self._reader.join()
        return code

    def send(self, number: signal.Signals) -> None:
        """Send a signal: SIGKILL, SIGSTOP and SIGCONT to its JVM as well."""
        if number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT):
            os.killpg(self._process.pid, number)
        else:
            self._process.send_signal(number)

    def kill_a_worker(self) -> None:
        """Kill one of the Python processes that run Spark's tasks, in mid-task.

        They are forked by a daemon of the same name.
        """
        workers = [
            child
            for child in psutil.Process(self._process.pid).children(recursive=True)
            if _is_of_workers(child) and _is_of_workers(child.parent())
        ]
        workers[0].kill()

    def kill_the_jvm(self) -> None:
        """Kill Spark's JVM, as the kernel does when memory runs out."""
        (jvm,) = (
            child
            for child in psutil.Process(self._process.pid).children()
            if child.name() == "java"
        )
        jvm.kill()

    @property
    def lines(self) -> list[str]:
        """What the driver has written to stderr, line by line."""
        return list(self._lines)

    @property
    def text(self) -> str:
        """Everything that the driver has written to stderr."""
        return "\n".join(self._lines)

    def _report(self, what: str) -> str:
        return f"driver {what}; exit code {self._process.poll()}:\n{self.text}"


def driver_environment(
    *,
    kafka_bootstrap: str,
    home_dsn: str,
    state_directory: Path,
    settings: Mapping[str, str],
) -> dict[str, str]:
    """Return all variables of a driver, with further settings among them."""
    return {
        **os.environ,
        # Some programs of tests take the driver's place.
        "PYTHONPATH": f"{_ROOT / 'src'}{os.pathsep}{_ROOT}",
        "PYSPARK_PYTHON": sys.executable,
        "TALLYWEIR_KAFKA_BOOTSTRAP": kafka_bootstrap,
        "TALLYWEIR_HOME_DSN": home_dsn,
        "TALLYWEIR_STATE_DIR": str(state_directory),
        "TALLYWEIR_SPARK_JARS": spark_jars(),
        "TALLYWEIR_SPARK_MASTER": "local[2]",
        **settings,
    }


def _is_of_workers(process: psutil.Process | None) -> bool:
    """Tell Python's processes from the JVM's other children, some of which just end."""
    try:
        return process is not None and _WORKER in process.cmdline()
    except psutil.NoSuchProcess:
        return False


def spark_jars() -> str:
    """Return the jars that a Spark session needs, as its settings take them."""
    given = os.environ.get("TALLYWEIR_SPARK_JARS")
    if given:
        return given
    from tallyweir.services.local.embedded import jars  # noqa: PLC0415 - fetches if missing

    return ",".join(map(str, jars.ensure_jars("spark")))
