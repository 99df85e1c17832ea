"""Start work that runs in parallel with its caller."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future


def begin_in_thread(work: Callable[[], None]) -> Future[None]:
    """Run ``work`` in a new thread that does not keep the process alive.

    The threads of a pool would keep it alive: a driver that must stop and gives up on a
    server that hangs could then never end.
    """
    begun: Future[None] = Future()

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - the waiting thread raises it
            begun.set_exception(error)
        else:
            begun.set_result(None)

    threading.Thread(target=run, name="publish", daemon=True).start()
    return begun
