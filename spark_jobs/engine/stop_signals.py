"""What ends a driver or a batch run from outside: SIGTERM, or Ctrl-C at a terminal.

SIGINT may be blocked until one of these is called, so that one which comes while Python
starts is not lost; from then on it is not.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

_INTERRUPTED = 128 + signal.SIGINT
_TOLD = (
    b"\nstopping after the batch at hand; Ctrl-C again ends at once, "
    b"and the next start goes on behind what is published\n"
)


def stop_on_signals() -> threading.Event:
    """Return what SIGTERM and Ctrl-C set; a second Ctrl-C ends the process at once.

    Crash:
        What a second Ctrl-C leaves is what ``kill -9`` leaves: the batch at hand is
        published or dropped whole.
    """
    stop = threading.Event()
    screen = _screen()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            if stop.is_set():
                os._exit(_INTERRUPTED)
            if os.isatty(screen):
                # The stream itself may be in the middle of a line of the log.
                os.write(screen, _TOLD)
        stop.set()

    signal.signal(signal.SIGTERM, on_signal)
    _on_interrupt(on_signal)
    return stop


def end_on_interrupt(told: str) -> None:
    """Let Ctrl-C end the process at once, as ``kill -9`` would, and say so."""
    screen = _screen()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        os.write(screen, f"\n{told}\n".encode())
        os._exit(_INTERRUPTED)

    _on_interrupt(on_signal)


def _screen() -> int:
    # While a JVM starts, what is called stderr is a file.
    return os.dup(sys.stderr.fileno())


def _on_interrupt(handler: Callable[[int, FrameType | None], None]) -> None:
    signal.signal(signal.SIGINT, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
