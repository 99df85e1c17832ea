"""A server process that outlives the command which started it.

Invariants:
    - The process itself writes ``pid`` before it becomes the server, so the process id
      of a running server is always known.
    - The process id alone proves nothing: it counts only while the command line of that
      process names our directory. So a stale file after a crash or a reboot does no
      harm.
"""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from tallyweir.sinks.protocol.errors import RetryableError

_LOG_LINES_SHOWN = 15
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
        tail = self.log.read_text(errors="replace").splitlines()[-_LOG_LINES_SHOWN:]
        return RetryableError(
            "SERVER_NOT_STARTED",
            saw=f"The embedded {self.name} {what}. Its log ends with:\n"
            + "\n".join(tail),
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
