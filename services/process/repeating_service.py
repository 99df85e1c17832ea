"""Services that do a round every few seconds: each alone, or one of several at a time.

A lock ensures that only one process of a tenured service works while the others stand
by; ``tallyweir.sinks.postgres.server.locks`` says what the lock promises.
"""

from __future__ import annotations

import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import FrameType
from typing import Generic, Protocol, TypeVar

import structlog
from prometheus_client import Counter, Gauge

from tallyweir.sinks.metrics_endpoint import Heartbeat
from tallyweir.sinks.postgres.server.locks import LockedSession
from tallyweir.sinks.protocol.errors import TallyweirError
from tallyweir.sinks.stop_event import StopEvent


class RepeatingService:
    """The clock and the end of such a service; subclasses define a round.

    Args:
        every_s: The seconds from the start of one round to the start of the next.
        silence_max_s: The service is not ready after ``every_s`` plus this many seconds
            without a finished round.
    """

    def __init__(self, *, every_s: float, silence_max_s: float) -> None:
        self._every_s = every_s
        self._stop = StopEvent()
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


_Session = TypeVar("_Session", bound=LockedSession)


class Tenure(Protocol):
    """The work of a service from taking the lock until losing it."""

    def run_round(self) -> list[str]:
        """Do one round.

        Returns:
            The codes of the errors that were logged.

        Raises:
            TallyweirError: The session with the home database has ended, and with it
                the lock.
        """


class TenureMetrics(Protocol):
    """The metrics of tenures."""

    @property
    def active(self) -> Gauge:
        """1 while this process works, 0 while it stands by."""

    @property
    def failures(self) -> Counter:
        """Work that an error cut short, by the error's code."""


class TenuredService(RepeatingService, ABC, Generic[_Session]):
    """Tries to take its lock at each round, and does the round if it holds the lock.

    Args:
        name: The service's name in its log.
        every_s: The seconds from the start of one round to the start of the next.
        silence_max_s: As in ``RepeatingService``.
        metrics: The metrics of tenures, and of the errors that end them.
    """

    def __init__(
        self,
        name: str,
        *,
        every_s: float,
        silence_max_s: float,
        metrics: TenureMetrics,
    ) -> None:
        super().__init__(every_s=every_s, silence_max_s=silence_max_s)
        self._name = name
        self._tenure_metrics = metrics
        self._session: _Session | None = None
        self._tenure: Tenure | None = None
        self._is_standing_by = False

    @abstractmethod
    def _open_session(self) -> _Session:
        """Open a session that does not hold the lock yet."""

    @abstractmethod
    def _make_tenure(self, session: _Session) -> Tenure:
        """Begin to work, now that the session holds the lock."""

    def run(self) -> None:
        """Do rounds until stopped; a failure waits for the next round."""
        self._log.info(f"{self._name} started", every_s=self._every_s)
        self._repeat(self.run_round)
        self._end_tenure()
        self._log.info(f"{self._name} stopped")

    def run_once(self) -> tuple[bool, list[str]]:
        """Do one round.

        Returns:
            Whether this process held the lock, and the codes of errors.
        """
        failures = self.run_round()
        was_active = self._tenure is not None
        self._end_tenure()
        return was_active, failures

    def run_round(self) -> list[str]:
        """Do one round; return the codes of the errors that were logged."""
        try:
            tenure = self._tenure or self._begin_tenure()
            failures = [] if tenure is None else tenure.run_round()
        except TallyweirError as error:
            self._end_tenure()
            self._tenure_metrics.failures.labels(error.code).inc()
            self._log.error(
                f"{self._name} interrupted",
                error_code=error.code,
                saw=error.saw,
                why=error.why,
                fix=error.fix,
            )
            return [error.code]
        self.rounds.beat()
        return failures

    def _begin_tenure(self) -> Tenure | None:
        if self._session is None:
            self._session = self._open_session()
        if not self._session.try_lock():
            if not self._is_standing_by:
                self._log.info("standing by", why="another service holds the lock")
            self._is_standing_by = True
            return None
        self._is_standing_by = False
        self._tenure = self._make_tenure(self._session)
        self._tenure_metrics.active.set(1)
        self._log.info(f"{self._name} active")
        return self._tenure

    def _end_tenure(self) -> None:
        """Release the lock and everything that the tenure has opened."""
        if self._session is not None:
            self._session.close()
        self._session = self._tenure = None
        self._tenure_metrics.active.set(0)
