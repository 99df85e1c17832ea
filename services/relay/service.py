"""Runs the relay until it is told to stop: as the home's relay, or standing by."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType

import structlog

from services.relay.relay_metrics import RelayMetrics
from services.relay.tenure import RelayTenure
from sinks.metrics_endpoint import Heartbeat
from sinks.postgres.relay_feed import RelayFeed
from sinks.protocol.errors import TallyweirError

#: Without a finished round for so long the relay is not ready: it cannot reach the
#: home database.
SILENCE_MAX_S = 60.0


class RelayService:
    """Does a round now and one every ``every_s`` seconds.

    One relay of a home database works at a time; the others try for its lock at each
    of their rounds.

    Args:
        home_dsn: libpq connection string of the home database.
        bootstrap: ``host:port``, several separated by commas.
        every_s: From the start of one round to the start of the next.
        metrics: Told of what was done.
    """

    def __init__(
        self, home_dsn: str, bootstrap: str, *, every_s: float, metrics: RelayMetrics
    ) -> None:
        self._home_dsn = home_dsn
        self._bootstrap = bootstrap
        self._every_s = every_s
        self._metrics = metrics
        self._stop = threading.Event()
        self._feed: RelayFeed | None = None
        self._tenure: RelayTenure | None = None
        self._is_standing_by = False
        self._log = structlog.get_logger()
        #: Beats after each round that reached the home database.
        self.rounds = Heartbeat(silence_max_s=SILENCE_MAX_S + every_s)

    def request_stop(self) -> None:
        """Ask the service to end after the step at hand; safe in a signal handler."""
        self._stop.set()

    def stop_on_signals(self) -> None:
        """End cleanly on SIGTERM and Ctrl-C."""

        def stop(_signal: int, _frame: FrameType | None) -> None:
            self.request_stop()

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)

    def run(self) -> None:
        """Do rounds until stopped; a failure waits for the next round."""
        self._log.info("relay started", every_s=self._every_s)
        while not self._stop.is_set():
            begun = time.monotonic()
            self.run_round()
            self._stop.wait(max(0.0, begun + self._every_s - time.monotonic()))
        self._end_tenure()
        self._log.info("relay stopped")

    def run_once(self) -> tuple[bool, list[str]]:
        """Do one round.

        Returns:
            Whether this process was the home's relay, and the codes of errors.
        """
        failures = self.run_round()
        was_active = self._tenure is not None
        self._end_tenure()
        return was_active, failures

    def run_round(self) -> list[str]:
        """Do one round, and return the codes of errors, each of which was told."""
        try:
            tenure = self._tenure or self._begin_tenure()
            failures = [] if tenure is None else tenure.run_round()
        except TallyweirError as error:
            self._end_tenure()
            self._metrics.failures.labels(error.code).inc()
            self._log.error(
                "relay interrupted",
                error_code=error.code,
                saw=error.saw,
                why=error.why,
                fix=error.fix,
            )
            return [error.code]
        self.rounds.beat()
        return failures

    def _begin_tenure(self) -> RelayTenure | None:
        if self._feed is None:
            self._feed = RelayFeed(self._home_dsn)
        if not self._feed.try_lock():
            if not self._is_standing_by:
                self._log.info("standing by", why="another relay holds the home's lock")
            self._is_standing_by = True
            return None
        self._is_standing_by = False
        self._tenure = RelayTenure(
            self._feed, self._bootstrap, self._metrics, is_stopped=self._stop.is_set
        )
        self._metrics.active.set(1)
        self._log.info("relay active")
        return self._tenure

    def _end_tenure(self) -> None:
        """Let go of the lock, and of all producers: the next tenure makes new ones."""
        if self._feed is not None:
            self._feed.close()
        self._feed = self._tenure = None
        self._metrics.active.set(0)
