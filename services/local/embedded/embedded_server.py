"""What the embedded servers have in common: a directory, a process, ports, and data."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from tallyweir.services.local.embedded.daemon import Daemon, free_port
from tallyweir.services.local.embedded.state_directory import exclusive, write_whole
from tallyweir.sinks.protocol.errors import FatalError

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
