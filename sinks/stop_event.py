"""An event that a signal handler may set."""

from __future__ import annotations

import threading
import time

_SLICE_S = 1.0


class StopEvent(threading.Event):
    """An event to end by, which is safe to set in a handler of signals.

    A handler runs in the main thread, in the middle of whatever that does. If that is
    ``wait`` of a plain event, the thread may hold the event's lock, and ``set`` would
    wait for it for ever. The lock of this event lets its holder in again.
    """

    def __init__(self) -> None:
        super().__init__()
        self._cond = threading.Condition(threading.RLock())

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the event is set; return whether it is.

        A handler may set it after ``wait`` has looked and before it sleeps. So it
        sleeps for a second at most before it looks again.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while not self.is_set():
            left = _SLICE_S if until is None else until - time.monotonic()
            if left <= 0:
                break
            super().wait(min(left, _SLICE_S))
        return self.is_set()
