"""A command in a terminal of its own, as a person has it."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

import psutil

_CTRL_C = b"\x03"
_TIMEOUT_S = 180.0
_POLL_S = 0.02


class Terminal:
    """One command whose terminal sends Ctrl-C to all of its processes.

    Args:
        command: What is typed.
        directory: Where.
        environment: The command's whole environment.
    """

    def __init__(
        self, command: Sequence[str], directory: Path, environment: Mapping[str, str]
    ) -> None:
        self._shown = b""
        self._code: int | None = None
        self.process, self._screen = pty.fork()
        if not self.process:
            os.chdir(directory)
            os.execvpe(command[0], list(command), environment)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._code is None:
            # The terminal's session is the command's.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process, signal.SIGKILL)
            os.waitpid(self.process, 0)
        os.close(self._screen)

    @property
    def text(self) -> str:
        """What is on the screen."""
        return self._shown.decode(errors="replace")

    def press_ctrl_c(self) -> None:
        """Interrupt whatever runs in the terminal."""
        os.write(self._screen, _CTRL_C)

    def await_text(self, text: str) -> None:
        """Wait until something is on the screen."""
        self._await(lambda: text in self.text, text)

    def await_program(self, argument: str) -> None:
        """Wait until the command has become a program with such an argument."""
        process = psutil.Process(self.process)
        self._await(lambda: argument in process.cmdline(), argument)

    def await_child(self, name: str) -> None:
        """Wait until the command has a child of a name."""
        process = psutil.Process(self.process)

        def has_child() -> bool:
            return any(child.name() == name for child in process.children())

        self._await(has_child, f"child {name}")

    def wait(self) -> int:
        """Return the command's exit code, negative after a signal."""
        self._await(self._has_ended, "end")
        assert self._code is not None
        return self._code

    def _has_ended(self) -> bool:
        process, status = os.waitpid(self.process, os.WNOHANG)
        if process:
            self._code = os.waitstatus_to_exitcode(status)
        return bool(process)

    def _await(self, is_there: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            # Read first: what a command writes before it ends is on the screen too.
            self._read()
            if is_there():
                self._read()
                return
            assert time.monotonic() < deadline, f"no {what}:\n{self.text}"

    def _read(self) -> None:
        timeout_s = _POLL_S
        while select.select([self._screen], [], [], timeout_s)[0]:
            try:
                shown = os.read(self._screen, 1 << 16)
            except OSError:
                # Nobody holds the other end any more.
                return
            if not shown:
                return
            self._shown += shown
            timeout_s = 0.0
