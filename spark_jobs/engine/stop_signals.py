"""Handle the signals that end a driver or a batch run: SIGTERM and Ctrl-C.

SIGINT may be blocked until one of these functions is called, so that a SIGINT during
Python's start is not lost. The functions unblock it.
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
    """Return the event that SIGTERM and Ctrl-C set.

    A second Ctrl-C ends the process at once.

    Crash:
        A second Ctrl-C has the effect of ``kill -9``: the current batch is published or
        dropped whole.
    """
    stop = threading.Event()
    screen = _screen()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            if stop.is_set():
                os._exit(_INTERRUPTED)
            if os.isatty(screen):
                # Write to the descriptor, because the stream may be in mid-line.
                os.write(screen, _TOLD)
        stop.set()

    signal.signal(signal.SIGTERM, on_signal)
    _on_interrupt(on_signal)
    return stop


def end_on_interrupt(told: str) -> None:
    """Make Ctrl-C write ``told`` and end the process at once, as ``kill -9`` does."""
    screen = _screen()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        os.write(screen, f"\n{told}\n".encode())
        os._exit(_INTERRUPTED)

    _on_interrupt(on_signal)


def _screen() -> int:
    # While a JVM starts, stderr's descriptor refers to a file.
    return os.dup(sys.stderr.fileno())


def _on_interrupt(handler: Callable[[int, FrameType | None], None]) -> None:
    signal.signal(signal.SIGINT, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
