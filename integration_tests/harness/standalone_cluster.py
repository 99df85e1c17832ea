"""A standalone cluster of Spark on this machine: a master and workers, as processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyspark

_ROOT = Path(__file__).parents[2]
_SPARK = Path(pyspark.__file__).parent
_PACKAGE = "org.apache.spark.deploy"
_HOST = "127.0.0.1"
_START_TIMEOUT_S = 90.0
_POLL_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class StandaloneCluster:
    """A cluster that runs.

    Attributes:
        address: Of its master.
        workers: Processes of its workers, whose children are the executors.
    """

    address: str
    workers: tuple[int, ...]

    def await_executors(
        self, wanted: int, *, timeout_s: float = _START_TIMEOUT_S
    ) -> None:
        """Wait until so many executors run, whatever anybody says of them."""
        deadline = time.monotonic() + timeout_s
        while (found := self.executors) != wanted:
            assert time.monotonic() < deadline, f"{found} executors, not {wanted}"
            time.sleep(_POLL_S)

    @property
    def executors(self) -> int:
        """How many run, by their processes."""
        children = [c for pid in self.workers for c in psutil.Process(pid).children()]
        return sum(_runs(child) for child in children)


def _runs(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        # It has ended since it was listed.
        return False


@contextmanager
def standalone_cluster(
    directory: Path, *, home_dsn: str, workers: int, cores: int = 1
) -> Iterator[StandaloneCluster]:
    """Run a cluster for as long as the block lasts; nothing of it survives.

    Args:
        directory: For its logs and scratch files.
        home_dsn: What its executors find in their environment.
        workers: How many there are.
        cores: Tasks that one runs at a time.
    """
    directory.mkdir()
    port = _free_port()
    environment = {
        **os.environ,
        "SPARK_HOME": str(_SPARK),
        "SPARK_LOCAL_DIRS": str(directory / "scratch"),
        "SPARK_WORKER_DIR": str(directory / "work"),
        "SPARK_DAEMON_MEMORY": "256m",
        # What executors inherit: tasks import our packages and copy to the home.
        "PYTHONPATH": str(_ROOT / "src"),
        "PYSPARK_PYTHON": sys.executable,
        "TALLYWEIR_HOME_DSN": home_dsn,
    }
    address = f"spark://{_HOST}:{port}"
    with ExitStack() as running:

        def start(what: str, *arguments: str) -> tuple[int, Path]:
            log = directory / f"{what}-{len(list(directory.glob('*.log')))}.log"
            process = _process(environment, log, what, arguments)
            return running.enter_context(process), log

        master = ("--host", _HOST, "--port", str(port), "--webui-port", "0")
        _, log = start("master.Master", *master)
        _await(log, "I have been elected leader")
        options = ("--host", _HOST, "--webui-port", "0", "-c", str(cores), "-m", "1g")
        started = [start("worker.Worker", *options, address) for _ in range(workers)]
        for _, log in started:
            _await(log, "Successfully registered with master")
        yield StandaloneCluster(
            address=address, workers=tuple(process for process, _ in started)
        )


@contextmanager
def _process(
    environment: Mapping[str, str], log: Path, what: str, arguments: tuple[str, ...]
) -> Iterator[int]:
    with log.open("w") as output:
        process = subprocess.Popen(
            [str(_SPARK / "bin" / "spark-class"), f"{_PACKAGE}.{what}", *arguments],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            # Executors are its children, and end with the group.
            start_new_session=True,
        )
    try:
        yield process.pid
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _await(log: Path, line: str) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while line not in (text := log.read_text()):
        assert time.monotonic() < deadline, text
        time.sleep(_POLL_S)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind((_HOST, 0))
        return int(found.getsockname()[1])
