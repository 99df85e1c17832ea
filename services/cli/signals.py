"""Handles signals of a command, and of a program that replaces it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Never

from tallyweir.services.cli.rendering import note

_FATAL = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end_once_on_signals() -> None:
    """Turn the first terminating signal into an exit that cleans up.

    Further signals are ignored: a second Ctrl-C must not leave servers behind.
    """

    def end(number: int, _frame: object) -> Never:
        for further in _FATAL:
            signal.signal(further, signal.SIG_IGN)
        note("interrupted: stopping the driver and the servers")
        sys.exit(128 + number)

    for number in _FATAL:
        signal.signal(number, end)


def become(arguments: Sequence[str], environment: Mapping[str, str]) -> Never:
    """Replace this process by a Python program.

    So signals and the exit code need no process in between. The program unblocks SIGINT
    when it is ready for it; earlier, Ctrl-C would end it with a stack trace.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    os.execve(sys.executable, [sys.executable, *arguments], environment)  # noqa: S606 - no shell
