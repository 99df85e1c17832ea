"""Runs the alerts service until it is told to stop: at work, or standing by."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Mapping
from types import FrameType

import structlog

from services.alerts.alert_metrics import AlertMetrics
from services.alerts.channel import Channel
from services.alerts.observer import Observer
from services.alerts.rules_file import RulesFile
from services.alerts.tenure import AlertTenure
from sinks.metrics_endpoint import Heartbeat
from sinks.postgres.alerting.alert_book import AlertBook
from sinks.protocol.errors import TallyweirError

#: Without a finished round for so long the service is not ready: it cannot reach the
#: home database, or hangs.
SILENCE_MAX_S = 120.0


class AlertService:
    """Does a round now and one every ``rules.every``.

    One service of a home database works at a time; the others try for its lock at each
    of their rounds.

    Args:
        home_dsn: libpq connection string of the home database.
        bootstrap: ``host:port``, several separated by commas.
        rules: What is asked.
        channels: Who is told, by name.
        metrics: Told of what was done.
    """

    def __init__(
        self,
        home_dsn: str,
        bootstrap: str,
        *,
        rules: RulesFile,
        channels: Mapping[str, Channel],
        metrics: AlertMetrics,
    ) -> None:
        self._home_dsn = home_dsn
        self._rules = rules
        self._channels = channels
        self._metrics = metrics
        self._observer = Observer(bootstrap, rules.rules.values())
        self._every_s = rules.every.total_seconds()
        self._stop = threading.Event()
        self._book: AlertBook | None = None
        self._tenure: AlertTenure | None = None
        self._is_standing_by = False
        self._log = structlog.get_logger()
        #: Beats after each round that reached the home database.
        self.rounds = Heartbeat(silence_max_s=SILENCE_MAX_S + self._every_s)

    def stop_on_signals(self) -> None:
        """End cleanly on SIGTERM and Ctrl-C."""

        def stop(_signal: int, _frame: FrameType | None) -> None:
            self._stop.set()

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)

    def run(self) -> None:
        """Do rounds until stopped; a failure waits for the next round."""
        self._log.info("alerts started", rules=len(self._rules.rules))
        while not self._stop.is_set():
            begun = time.monotonic()
            self.run_round()
            self._stop.wait(max(0.0, begun + self._every_s - time.monotonic()))
        self._end_tenure()
        self._log.info("alerts stopped")

    def run_once(self) -> tuple[bool, list[str]]:
        """Do one round.

        Returns:
            Whether this process was the one at work, and the codes of errors.
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
                "alerts interrupted",
                error_code=error.code,
                saw=error.saw,
                why=error.why,
                fix=error.fix,
            )
            return [error.code]
        self.rounds.beat()
        return failures

    def _begin_tenure(self) -> AlertTenure | None:
        if self._book is None:
            self._book = AlertBook(self._home_dsn)
        if not self._book.try_lock():
            if not self._is_standing_by:
                self._log.info("standing by", why="another service holds the lock")
            self._is_standing_by = True
            return None
        self._is_standing_by = False
        self._tenure = AlertTenure(
            self._book,
            self._observer,
            self._rules.rules,
            self._channels,
            self._metrics,
            is_stopped=self._stop.is_set,
        )
        self._metrics.active.set(1)
        self._log.info("alerts active")
        return self._tenure

    def _end_tenure(self) -> None:
        """Let go of the lock."""
        if self._book is not None:
            self._book.close()
        self._book = self._tenure = None
        self._metrics.active.set(0)
