"""What the embedded servers have in common: a directory, a process, ports, and data.

The process outlives the command which started it.

Invariants:
    - The process itself writes ``pid`` before it becomes the server, so the process id
      of a running server is always known.
    - The process id alone proves nothing: it counts only while the command line of that
      process names our directory. So a stale file after a crash or a reboot does no
      harm.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import psutil

from tallyweir.services.local.embedded.state_directory import exclusive, write_whole
from tallyweir.services.local.embedded.virtual_environment import last_lines
from tallyweir.sinks.protocol.errors import FatalError, RetryableError

_START_DEADLINE_S = 60.0
_STOP_DEADLINE_S = 60.0


class EmbeddedServer(ABC):
    """A server whose data, log and ports live in one directory.

    Args:
        directory: Directory of the server; made when missing. A directory has one
            server, whichever process starts it.
    """

    #: Name of the server in messages.
    name: ClassVar[str]
    #: Ends the server cleanly.
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    #: Names of its ports; clients use the first one.
    ports: ClassVar[tuple[str, ...]] = ("port",)

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self.daemon = Daemon(self.name, self.directory)
        self._data = self.directory / "data"
        self._ports_file = self.directory / "ports.json"

    def last_port(self) -> int | None:
        """Return the port of the current or last run; None if it never ran."""
        return self._read_ports().get("port")

    def is_running(self) -> bool:
        """Whether the process runs; ``start`` also waits until it answers."""
        return self.daemon.find() is not None

    def start(self) -> bool:
        """Start the server if needed, and wait until it answers; keep all data.

        Returns:
            True if the server was started, False if it was already running.

        Raises:
            RetryableError: The server did not start; the error shows the end of its
                log.
            FatalError: The data directory could not be made.

        Crash:
            After a crash at any point, the next call recovers: a half-made data
            directory was not yet moved into place, and a started server has written its
            pid.
        """
        with exclusive(self.directory):
            was_running = self.is_running()
            if not was_running:
                self._spawn()
            # Check the process first: another program may hold the port.
            self.daemon.await_ready(
                lambda: self.is_running() and self._answers(),
                deadline_s=_START_DEADLINE_S,
            )
            self._complete()
        return not was_running

    def stop(self) -> bool:
        """Stop the server cleanly.

        Returns:
            Whether the server was running.

        Raises:
            RetryableError: The server did not end in time.
        """
        with exclusive(self.directory):
            return self.daemon.stop(self.stop_signal, deadline_s=_STOP_DEADLINE_S)

    def delete_data(self) -> None:
        """Stop the server, and remove its data and all else in the directory."""
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    @abstractmethod
    def _spawn(self) -> None:
        """Start the process; make the data directory if there is none."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether a client is served."""

    def _complete(self) -> None:  # noqa: B027 - a broker needs nothing more
        """Make what needs a server that answers."""

    @property
    def _port(self) -> int:
        return self._read_ports()["port"]

    def _read_ports(self) -> dict[str, int]:
        if not self._ports_file.exists():
            return {}
        ports: dict[str, int] = json.loads(self._ports_file.read_text())
        return ports

    def _choose_ports(self) -> dict[str, int]:
        """Choose the ports of a run: those of the last one if they are free."""
        known = self._read_ports()
        ports = {name: free_port(known.get(name)) for name in self.ports}
        write_whole(self._ports_file, json.dumps(ports))
        return ports

    def _partial_data(self) -> Path:
        """Return an empty place where a data directory can be made."""
        partial = self.directory / "data.partial"
        shutil.rmtree(partial, ignore_errors=True)
        return partial

    def _make_data(
        self,
        command: list[str],
        partial: Path,
        *,
        code: str,
        environment: dict[str, str] | None = None,
    ) -> None:
        """Make the data directory by a tool, and move it into place once it is whole.

        Raises:
            FatalError: The tool failed; the error has the given code.
        """
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise FatalError(
                code,
                saw=f"{self.name} could not create its data directory: "
                f"{done.stdout}{done.stderr}".strip(),
                why="A server needs a complete data directory.",
                fix=f"check that {self.directory} is writable and not full",
            )
        partial.rename(self._data)


_POLL_INTERVAL_S = 0.05
_SERVER_PORTS = range(20_000, 32_000)
# Use the kernel's generator: two processes with the same seed, such as tests, would
# choose the same port at the same time.
_CHANCE = random.SystemRandom()
# Two shells detach the server from its starter, so that it leaves no zombie in a
# process that outlives it; and the inner shell knows its own process id.
_DETACH = '/bin/sh -c "$0" "$@" &'
# Only this user may read the server's files: they hold data of producers.
_WRITE_PID_THEN_BECOME = 'umask 077 && echo $$ >"$0" && exec "$@"'


class Daemon:
    """Starts, finds and stops one server process of a directory.

    Args:
        name: Name of the server in messages.
        directory: Directory of ``pid`` and ``log``; the server's command line must name
            it.
    """

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.directory = directory
        self.log = directory / "log"
        self._pid_file = directory / "pid"

    def find(self) -> psutil.Process | None:
        """Return the running process, or None; never a process that is not ours."""
        try:
            process = psutil.Process(int(self._pid_file.read_text()))
            is_ours = any(str(self.directory) in part for part in process.cmdline())
            is_alive = process.status() != psutil.STATUS_ZOMBIE
        except (OSError, ValueError, psutil.Error):
            return None
        return process if is_ours and is_alive else None

    def spawn(self, command: list[str], environment: dict[str, str]) -> None:
        """Start the process in a session of its own, away from any terminal."""
        if self.log.exists():
            self.log.replace(self.log.with_suffix(".previous"))
        self._pid_file.unlink(missing_ok=True)
        with self.log.open("wb") as log:
            subprocess.run(
                [
                    *("/bin/sh", "-c", _DETACH, _WRITE_PID_THEN_BECOME),
                    *(str(self._pid_file), *command),
                ],
                check=True,
                cwd=self.directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def await_ready(self, is_ready: Callable[[], bool], *, deadline_s: float) -> None:
        """Wait until the server answers.

        Raises:
            RetryableError: The server ended, or did not answer in time; the error shows
                the end of its log.
        """
        give_up = time.monotonic() + deadline_s
        # The shell needs a moment to write its process id.
        grace = time.monotonic() + 5
        while not is_ready():
            now = time.monotonic()
            if now > give_up:
                raise self._not_ready(f"did not answer within {deadline_s:.0f} s")
            if now > grace and self.find() is None:
                raise self._not_ready("ended while it started")
            time.sleep(_POLL_INTERVAL_S)

    def stop(self, how: signal.Signals, *, deadline_s: float) -> bool:
        """End the process with a signal and wait until it is gone.

        Returns:
            Whether a process was running.

        Raises:
            RetryableError: The process did not end in time.
        """
        process = self.find()
        if process is None:
            self._pid_file.unlink(missing_ok=True)
            return False
        process.send_signal(how)
        try:
            process.wait(deadline_s)
        except psutil.TimeoutExpired:
            raise RetryableError(
                "STOP_TIMED_OUT",
                saw=f"{self.name} (process {process.pid}) still runs {deadline_s:.0f} s"
                f" after {how.name}.",
                why="Only a clean stop settles its data for certain.",
                fix=f"look at {self.log} and try again; kill -9 {process.pid} is safe "
                "too, because the next start recovers",
            ) from None
        self._pid_file.unlink(missing_ok=True)
        return True

    def _not_ready(self, what: str) -> RetryableError:
        tail = last_lines(self.log.read_text(errors="replace"))
        return RetryableError(
            "SERVER_NOT_STARTED",
            saw=f"The embedded {self.name} {what}. Its log ends with:\n{tail}",
            why="Without it no pipeline can read or publish.",
            fix=f"read {self.log}, remove the cause and start again",
        )


def free_port(preferred: int | None = None) -> int:
    """Return a free TCP port on 127.0.0.1: the preferred one if possible.

    Other choices lie below the range from which the kernel assigns ports to clients.
    Otherwise a client could take a server's port while the server restarts, and the
    server's address would change.
    """
    chosen = _CHANCE.sample(_SERVER_PORTS, 100)
    for port in (*([] if preferred is None else [preferred]), *chosen, 0):
        with socket.socket() as probe:
            # Without this, the port of a server stopped a minute ago seems taken.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise AssertionError("the kernel always has a free port to give")
