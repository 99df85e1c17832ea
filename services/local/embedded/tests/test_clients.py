"""Who works with a server is found by his connection, and named by his command."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tallyweir.services.local.embedded.servers import check_unused, find_clients
from tallyweir.sinks.protocol.errors import ConfigurationError

_PROGRAM = """
import socket, sys
held = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
print("connected", flush=True)
sys.stdin.read()
"""


@contextmanager
def _connected(port: int, *command: str, directory: Path) -> Iterator[int]:
    """Run a program that stays connected; yield its process id."""
    with subprocess.Popen(
        [sys.executable, *command, str(port)],
        cwd=directory,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"connected\n"
        yield process.pid
        process.stdin.close()


def test_our_processes_that_are_connected_are_named(tmp_path: Path) -> None:
    """A driver among them; a stranger's, as psql, keeps nobody from stopping."""
    (tmp_path / "tallyweir").mkdir()
    (tmp_path / "tallyweir" / "__init__.py").touch()
    (tmp_path / "tallyweir" / "spark_jobs.py").write_text(_PROGRAM)
    (tmp_path / "stranger.py").write_text(_PROGRAM)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with (
            _connected(port, "-m", "stranger", directory=tmp_path),
            _connected(
                port, "-m", "tallyweir.spark_jobs", directory=tmp_path
            ) as driver,
        ):
            (found,) = find_clients({port})
            assert str(found) == f"process {driver} (tallyweir.spark_jobs {port})"
            assert [] == find_clients({port + 1})
            script = tmp_path / "bin" / "tallyweir"
            script.parent.mkdir()
            script.write_text(_PROGRAM.replace("argv[1]", "argv[-1]"))
            with _connected(port, str(script), "relay", directory=tmp_path) as relay:
                assert f"process {relay} (tallyweir relay {port})" in map(
                    str, find_clients({port})
                )
            with pytest.raises(ConfigurationError, match=rf"SERVERS_IN_USE.*{driver}"):
                check_unused([port])
        check_unused([port])
