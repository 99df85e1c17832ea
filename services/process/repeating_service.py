"""A service that does a round every few seconds, until a signal stops it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

import structlog

from tallyweir.sinks.metrics_endpoint import Heartbeat


class RepeatingService:
    """The clock and the end of such a service; subclasses define a round.

    Args:
        every_s: The seconds from the start of one round to the start of the next.
        silence_max_s: The service is not ready after ``every_s`` plus this many seconds
            without a finished round.
    """

    def __init__(self, *, every_s: float, silence_max_s: float) -> None:
        self._every_s = every_s
        self._stop = threading.Event()
        self._log = structlog.get_logger()
        #: Beats after each round that reached the home database.
        self.rounds = Heartbeat(silence_max_s=silence_max_s + every_s)

    def request_stop(self) -> None:
        """Ask the service to end after the current step; safe in a signal handler."""
        self._stop.set()

    def stop_on_signals(self) -> None:
        """End cleanly on SIGTERM and Ctrl-C."""

        def stop(_signal: int, _frame: FrameType | None) -> None:
            self.request_stop()

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)

    def _repeat(self, do_round: Callable[[], object]) -> None:
        """Do a round now and then every ``every_s`` seconds, until asked to stop."""
        while not self._stop.is_set():
            begun = time.monotonic()
            do_round()
            self._stop.wait(max(0.0, begun + self._every_s - time.monotonic()))
