"""Run the Spark driver as a child process: read its log lines, and end it.

The driver runs in its own process session. So one signal reaches its JVM as well, and a
Ctrl-C at the terminal does not reach it.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import psutil

from tallyweir.sinks.process_log import LOG_LEVEL_VARIABLE
from tallyweir.sinks.protocol.errors import FatalError

#: A driver takes about ten seconds to its first batch, on a busy machine longer.
SILENCE_MAX_S = 180.0
_DRAIN_TIMEOUT_S = 150.0
_LEAVE_TIMEOUT_S = 5.0
_TICK_S = 0.25


class DriverProcess:
    """One ``tallyweir.spark_jobs PIPELINE.yaml``; no process of it survives the block.

    Args:
        pipeline_file: The pipeline to run.
        environment: The driver's whole environment.
        arguments: Further arguments of its command.
        module: The module that runs the pipeline.
        transcript: A file to which every line of the driver is appended.
    """

    #: How many of its last lines a failure shows; None for all.
    lines_kept: ClassVar[int | None] = 40
    #: The least level of the lines that the driver writes.
    log_level: ClassVar[str] = "debug"

    def __init__(
        self,
        pipeline_file: Path,
        environment: Mapping[str, str],
        *,
        arguments: Sequence[str] = (),
        module: str = "tallyweir.spark_jobs",
        transcript: Path | None = None,
    ) -> None:
        self._lines: deque[str] = deque(maxlen=self.lines_kept)
        self._transcript = transcript
        self._events: queue.Queue[dict[str, Any]] = queue.Queue()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, str(pipeline_file), *arguments],
            env={**environment, LOG_LEVEL_VARIABLE: self.log_level},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.kill()
        end_session(self._process.pid)
        self._reader.join()

    def next_event(self, timeout_s: float) -> dict[str, Any] | None:
        """Return the driver's next log line, or None if no line arrives in time.

        Raises:
            FatalError: The driver has ended, and all of its lines were returned.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            has_ended = not self._reader.is_alive()
            left_s = max(0.0, deadline - time.monotonic())
            try:
                return self._events.get(timeout=min(_TICK_S, left_s))
            except queue.Empty:
                if has_ended:
                    raise self.failure("ended by itself") from None
                if left_s == 0.0:
                    return None

    @property
    def pid(self) -> int:
        """The number of its Python process."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code, negative after a signal; None while the driver runs."""
        return self._process.poll()

    def take_events(self) -> list[dict[str, Any]]:
        """Return the log lines that arrived since the last call, without waiting."""
        events = []
        with contextlib.suppress(queue.Empty):
            while True:
                events.append(self._events.get_nowait())
        return events

    @property
    def has_told_all(self) -> bool:
        """Whether the driver has ended and all of its lines have been read."""
        return not self._reader.is_alive()

    def members(self) -> list[psutil.Process]:
        """Every process of the driver: itself, its JVM, its Python workers."""
        return _members(self._process.pid)

    def terminate(self) -> None:
        """Ask the driver to drain, without waiting for it."""
        self._process.terminate()

    def kill(self) -> None:
        """Kill the driver and its JVM with SIGKILL; return once they are gone."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def drain(self) -> None:
        """Ask the driver to stop after the current batch, and wait until it has.

        Raises:
            FatalError: The driver did not end, or ended with an error.
        """
        self._process.terminate()
        try:
            code = self._process.wait(timeout=_DRAIN_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise self.failure("did not stop after SIGTERM") from None
        if code != 0:
            raise self.failure("did not drain well")

    @property
    def last_line(self) -> str:
        """The driver's last line."""
        return self._lines[-1] if self._lines else ""

    def failure(self, what: str) -> FatalError:
        """Describe what is wrong with the driver, with the last lines it wrote."""
        code = self._process.poll()
        if code is not None:
            # Its last words may still be on their way.
            self._reader.join(_LEAVE_TIMEOUT_S)
        state = "still running" if code is None else f"exit code {code}"
        return FatalError(
            "DRIVER_FAILED",
            saw="\n".join(
                [f"The driver {what} ({state}). Its last lines:", *self._lines]
            ),
            why="A drill needs a driver that does its work.",
            fix="Remove the cause that the lines name, and start the drill again.",
        )

    def _read(self) -> None:
        assert self._process.stderr is not None
        with contextlib.ExitStack() as files:
            files.enter_context(self._process.stderr)
            copy = None
            if self._transcript is not None:
                copy = files.enter_context(self._transcript.open("a", buffering=1))
            for line in self._process.stderr:
                if copy is not None:
                    copy.write(line)
                self._lines.append(line.rstrip("\n"))
                if (event := _parse(line)) is not None:
                    self._events.put(event)


def stop_leftovers(pipeline_file: Path) -> None:
    """End the drivers of a pipeline file that a killed demo left running."""
    for process in psutil.process_iter():
        try:
            if str(pipeline_file) in process.cmdline():
                end_session(os.getsid(process.pid))
        except (OSError, psutil.Error):
            # The process has ended in the meantime, or belongs to another user.
            continue


def end_session(session: int) -> None:
    """Wait until no process of a session runs; kill the processes that stay.

    A dead driver's Python workers usually end by themselves, a moment later.
    """
    if _has_left(session):
        return
    for process in _members(session):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    _has_left(session)


def _has_left(session: int) -> bool:
    deadline = time.monotonic() + _LEAVE_TIMEOUT_S
    while members := _members(session):
        if time.monotonic() > deadline:
            return False
        psutil.wait_procs(members, timeout=_TICK_S)
    return True


def _members(session: int) -> list[psutil.Process]:
    members = []
    for process in psutil.process_iter():
        try:
            in_session = os.getsid(process.pid) == session
            # An orphan that has ended stays a zombie until init collects it.
            if in_session and process.status() != psutil.STATUS_ZOMBIE:
                members.append(process)
        except (OSError, psutil.Error):
            # The process has ended in the meantime.
            continue
    return members


def _parse(line: str) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None
