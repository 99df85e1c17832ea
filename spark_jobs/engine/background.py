"""Begins work that goes on beside its caller."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future


def begin_in_thread(work: Callable[[], None]) -> Future[None]:
    """Do something in a thread of its own, which does not keep the process alive.

    A pool's threads would: a driver that is told to stop, and waits no longer for a
    server that hangs, could never end.
    """
    begun: Future[None] = Future()

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - whoever waits shall raise it
            begun.set_exception(error)
        else:
            begun.set_result(None)

    threading.Thread(target=run, name="publish", daemon=True).start()
    return begun
