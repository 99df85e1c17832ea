"""Runs the alerts service until it is told to stop: at work, or standing by."""

from __future__ import annotations

from collections.abc import Mapping

from tallyweir.services.alerts.alert_metrics import AlertMetrics
from tallyweir.services.alerts.channel import Channel
from tallyweir.services.alerts.observer import Observer
from tallyweir.services.alerts.rules_file import RulesFile
from tallyweir.services.alerts.tenure import AlertTenure
from tallyweir.services.process.tenured_service import TenuredService
from tallyweir.sinks.postgres.alerting.alert_book import AlertBook

#: After this long without a finished round, the service is not ready: it cannot reach
#: the home database, or it hangs.
SILENCE_MAX_S = 120.0


class AlertService(TenuredService[AlertBook]):
    """The alerts service of a home database; does a round every ``rules.every``.

    Args:
        home_dsn: libpq connection string of the home database.
        bootstrap: ``host:port``, several separated by commas.
        rules: The rules and channels of the file.
        channels: Channels by name.
        metrics: Metrics to update.
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
        super().__init__(
            "alerts",
            every_s=rules.every.total_seconds(),
            silence_max_s=SILENCE_MAX_S,
            metrics=metrics,
        )
        self._home_dsn = home_dsn
        self._rules = rules
        self._channels = channels
        self._metrics = metrics
        self._observer = Observer(bootstrap, rules.rules.values())

    def _open_session(self) -> AlertBook:
        return AlertBook(self._home_dsn)

    def _make_tenure(self, session: AlertBook) -> AlertTenure:
        return AlertTenure(
            session,
            self._observer,
            self._rules.rules,
            self._channels,
            self._metrics,
            is_stopped=self._stop.is_set,
        )
