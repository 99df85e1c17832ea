"""Ends a command on a signal so that it cleans up behind itself, once."""

from __future__ import annotations

import signal
import sys
from typing import Never

from services.cli.rendering import note

_FATAL = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end_once_on_signals() -> None:
    """Turn the first signal that ends a program into an exit that cleans up.

    Further ones are ignored: a second Ctrl-C must not leave servers behind.
    """

    def end(number: int, _frame: object) -> Never:
        for further in _FATAL:
            signal.signal(further, signal.SIG_IGN)
        note("interrupted: stopping the driver and the servers")
        sys.exit(128 + number)

    for number in _FATAL:
        signal.signal(number, end)
