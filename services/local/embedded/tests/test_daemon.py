"""A process of ours is found, waited for and stopped; others are left alone."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from tallyweir.services.local.embedded.embedded_server import Daemon, free_port
from tallyweir.sinks.protocol.errors import RetryableError

_WAIT_FOR_SIGNAL = "import signal, sys; print(sys.argv[1], flush=True); signal.pause()"


def waiting(directory: Path) -> list[str]:
    """A program that names the directory on its command line and waits."""
    return [sys.executable, "-c", _WAIT_FOR_SIGNAL, str(directory)]


def test_a_started_process_is_found_and_stopped(tmp_path: Path) -> None:
    """Whoever asks later, from any process, finds the same server."""
    Daemon("it", tmp_path).spawn(waiting(tmp_path), dict(os.environ))
    daemon = Daemon("it", tmp_path)
    daemon.await_ready(lambda: str(tmp_path) in daemon.log.read_text(), deadline_s=10)

    assert daemon.find() is not None
    assert daemon.stop(signal.SIGTERM, deadline_s=10)
    assert daemon.find() is None
    assert not daemon.stop(signal.SIGTERM, deadline_s=10)


def test_a_stale_pid_of_somebody_else_is_not_ours(tmp_path: Path) -> None:
    """After a reboot the number may belong to anyone: it must not be stopped."""
    (tmp_path / "pid").write_text(str(os.getpid()))
    daemon = Daemon("it", tmp_path)

    assert daemon.find() is None
    assert not daemon.stop(signal.SIGKILL, deadline_s=1)


@pytest.mark.parametrize("content", ["", "x", "999999999"])
def test_a_broken_pid_file_means_not_running(tmp_path: Path, content: str) -> None:
    """A crash may leave anything in the file."""
    (tmp_path / "pid").write_text(content)

    assert Daemon("it", tmp_path).find() is None


def test_a_server_that_never_answers_shows_its_log(tmp_path: Path) -> None:
    """The reason stands in the log, so the error brings it along."""
    daemon = Daemon("it", tmp_path)
    daemon.log.write_text("port is taken\n")

    with pytest.raises(RetryableError, match="port is taken"):
        daemon.await_ready(lambda: False, deadline_s=0.1)


def test_a_free_port_is_kept_when_it_is_still_free() -> None:
    """Addresses that users have noted stay good over restarts."""
    port = free_port()

    assert port == free_port(port)


def test_a_taken_port_is_replaced() -> None:
    """Another program on our port is no reason not to start."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]

        assert taken != free_port(taken)
