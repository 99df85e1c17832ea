"""What the chart's containers run first: it passes signals on and keeps exit codes."""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tallyweir.services.local.embedded.embedded_server import free_port
from tallyweir.services.local.embedded.state_directory import ROOT

_FILES = ROOT / "docker" / "kubernetes" / "tallyweir" / "files"
_TIMEOUT_S = 20.0

#: A driver that drains in two steps, so that a wait which a signal ends early shows.
_DRIVER = """
case "$*" in
"-P -m tallyweir.spark_jobs "*)
    trap 'echo draining; sleep 0.3; echo drained; exit 0' TERM
    echo "started $*"
    [ -n "${ENDS_WITH:-}" ] && exit "$ENDS_WITH"
    while :; do sleep 0.05; done
    ;;
*) exec REAL "$@" ;;
esac
"""


@contextmanager
def _container(tmp_path: Path, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """Start a driver's container, with a shell script for the driver itself."""
    programs = tmp_path / "bin"
    programs.mkdir()
    python = programs / "python"
    python.write_text("#!/bin/sh" + _DRIVER.replace("REAL", sys.executable))
    python.chmod(0o755)
    with subprocess.Popen(
        ["sh", str(_FILES / "start-driver.sh"), "departures.yaml"],
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def _get(port: int, path: str) -> tuple[int, str]:
    """Ask until somebody answers."""
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except ConnectionRefusedError:
            assert time.monotonic() < deadline, "nobody answers"
            time.sleep(0.05)
        finally:
            connection.close()


def test_sigterm_lets_the_driver_drain(tmp_path: Path) -> None:
    """The container ends when the driver has, and as it has."""
    with _container(tmp_path) as process:
        assert process.stdout is not None
        started = process.stdout.readline()
        assert "started -P -m tallyweir.spark_jobs departures.yaml\n" == started
        process.send_signal(signal.SIGTERM)
        assert 0 == process.wait(_TIMEOUT_S)
        assert ["draining\n", "drained\n"] == process.stdout.readlines()


@pytest.mark.parametrize("code", ["0", "70", "75", "78"])
def test_other_ends_are_the_containers_own(tmp_path: Path, code: str) -> None:
    """Kubernetes starts it again, later and later."""
    with _container(tmp_path, ENDS_WITH=code) as process:
        assert int(code) == process.wait(_TIMEOUT_S)


def test_a_fenced_driver_stays_alive_and_is_never_ready(tmp_path: Path) -> None:
    """Started again it would fence its successor; deleted, it ends at once."""
    port = free_port()
    with _container(
        tmp_path, ENDS_WITH="76", TALLYWEIR_METRICS_PORT=str(port)
    ) as process:
        assert 200 == _get(port, "/livez")[0]
        status, why = _get(port, "/readyz")
        assert 503 == status
        assert "fenced" in why
        assert 503 == _get(port, "/metrics")[0]
        process.send_signal(signal.SIGTERM)
        assert 0 == process.wait(_TIMEOUT_S)


def test_an_executor_gets_what_spark_put_into_its_environment(tmp_path: Path) -> None:
    """Java options in their order, and with their blanks."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text('#!/bin/sh\nfor word in "$@"; do echo "$word"; done\n')
    java.chmod(0o755)
    names = [
        *("DRIVER_URL", "EXECUTOR_ID", "EXECUTOR_CORES", "APPLICATION_ID"),
        *("EXECUTOR_POD_IP", "RESOURCE_PROFILE_ID", "EXECUTOR_POD_NAME"),
    ]
    bash = shutil.which("bash")
    assert bash is not None
    done = subprocess.run(
        [bash, str(_FILES / "start-executor.sh")],
        env={
            "PATH": os.environ["PATH"],
            "JAVA_HOME": str(tmp_path),
            "SPARK_HOME": "/spark",
            "SPARK_EXECUTOR_MEMORY": "2g",
            **{f"SPARK_JAVA_OPT_{n}": f"-Dnumber={n} of 12" for n in range(12)},
            **{f"SPARK_{name}": name.lower() for name in names},
        },
        capture_output=True,
        text=True,
        check=True,
    )
    words = done.stdout.splitlines()
    assert [f"-Dnumber={n} of 12" for n in range(12)] == words[:12]
    assert ["-Xms2g", "-Xmx2g", "-cp", ":/spark/jars/*"] == words[12:16]
    assert [name.lower() for name in names] == words[18::2]
