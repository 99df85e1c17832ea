"""Runs the alerts service until it is told to stop: at work, or standing by.

``AlertTenure`` is its work while it holds the home's lock. docs/metrics.md has the
formulas of its metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from tallyweir.services.alerts.alert_rule import AlertRule
from tallyweir.services.alerts.channels import Channel
from tallyweir.services.alerts.lifecycle import find_changes
from tallyweir.services.alerts.observer import Observer
from tallyweir.services.alerts.rules_file import RulesFile
from tallyweir.services.process.repeating_service import TenuredService
from tallyweir.sinks.postgres.records.alert_book import (
    Alert,
    AlertBook,
    Notification,
    Severity,
)
from tallyweir.sinks.protocol.errors import TallyweirError

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


#: Most notifications that a round sends; the next round goes on.
NOTIFICATIONS_MAX = 100
#: Seconds until a failed channel is tried again: the first doubles with each failure,
#: up to the last.
RETRY_FIRST_S = 5.0
RETRY_LAST_S = 300.0
_DOUBLINGS_MAX = 10


class AlertTenure:
    """Looks, records what has changed, and tells the channels.

    Invariant: every notification was recorded before it is sent, in the transaction
    that changed the alert, and is read through the session that holds the lock.

    Args:
        book: Records alerts; its connection holds the lock.
        observer: Makes observations for the rules.
        rules: Rules by name.
        channels: Channels by name.
        metrics: Metrics, updated after each step.
        is_stopped: Called before each notification; True ends the round.
    """

    def __init__(  # noqa: PLR0913 - one for each thing that it puts together
        self,
        book: AlertBook,
        observer: Observer,
        rules: Mapping[str, AlertRule],
        channels: Mapping[str, Channel],
        metrics: AlertMetrics,
        *,
        is_stopped: Callable[[], bool],
    ) -> None:
        self._book = book
        self._observer = observer
        self._rules = rules
        self._channels = channels
        self._metrics = metrics
        self._is_stopped = is_stopped
        self._installation = book.read_installation()
        self._log = structlog.get_logger()
        book.forget_old()

    def run_round(self) -> list[str]:
        """Look once, and send the due notifications.

        Returns:
            Codes of the errors that were logged.

        Raises:
            TallyweirError: The session with the home has ended, and with it the lock.
        """
        return self._look() + self._tell_all()

    def _look(self) -> list[str]:
        found = self._book.run("reading pipelines", self._observer.read_home)
        if found.now is None:
            return []
        observations, troubles = self._observer.observe(found)
        lasting = self._book.read_lasting()
        changes = find_changes(self._rules, observations, lasting, found.now)
        self._book.record(
            begun=changes.begun, changed=changes.changed, ended=changes.ended
        )
        for alert, _channels in [*changes.begun, *changes.changed.values()]:
            if alert.fired_at == found.now:
                self._log.warning("alert fires", **_shown(alert))
        for alert_id in changes.ended:
            if lasting[alert_id].fired_at is not None:
                self._log.info("alert resolved", **_shown(lasting[alert_id]))
        firing = [
            one.severity
            for one in self._book.read_lasting().values()
            if one.fired_at is not None
        ]
        for severity in Severity:
            self._metrics.firing.labels(severity.value).set(firing.count(severity))
        return [
            self._failed("some facts could not be read", error) for error in troubles
        ]

    def _tell_all(self) -> list[str]:
        due = self._book.read_due(
            list(self._channels),
            forgetful=[
                name for name, one in self._channels.items() if one.again_s is not None
            ],
            rows_max=NOTIFICATIONS_MAX,
        )
        failures: list[str] = []
        silent: set[str] = set()
        for told in due:
            # Skip a channel that has failed in this round: it would delay the others.
            if self._is_stopped() or told.channel in silent:
                continue
            try:
                self._tell(told)
            except TallyweirError as error:
                if not self._book.is_open:
                    raise
                silent.add(told.channel)
                self._book.note_failure(
                    told, code=error.code, again_s=retry_after_s(told.failures)
                )
                failures.append(self._failed("not told", error))
        return failures

    def _tell(self, told: Notification) -> None:
        """Send a notification, and note its delivery.

        Crash:
            Before the note, the next round sends it again under the same ID; after the
            note, it does not.
        """
        channel = self._channels[told.channel]
        channel.tell(told, self._installation)
        self._book.note_delivered(told, again_s=channel.again_s or 0.0)
        self._metrics.notifications.labels(told.channel).inc()
        if not told.is_repeat:
            self._log.info(
                "told",
                channel=told.channel,
                notification=told.id,
                rule=told.rule,
                pipeline=told.pipeline,
            )

    def _failed(self, event: str, error: TallyweirError) -> str:
        self._metrics.failures.labels(error.code).inc()
        self._log.error(
            event, error_code=error.code, saw=error.saw, why=error.why, fix=error.fix
        )
        return error.code


def retry_after_s(failures: int) -> float:
    """Return how long to leave a channel alone after some failures in a row."""
    return float(min(RETRY_LAST_S, RETRY_FIRST_S * 2 ** min(failures, _DOUBLINGS_MAX)))


def _shown(alert: Alert) -> dict[str, object]:
    return {
        "rule": alert.rule,
        "pipeline": alert.pipeline,
        "severity": alert.severity.value,
        "told": alert.told,
    }


class AlertMetrics:
    """The service's own metrics, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.firing = Gauge(
            "tallyweir_alerts_firing",
            "Alerts that fire, after the last look.",
            ["severity"],
            registry=self.registry,
        )
        self.notifications = Counter(
            "tallyweir_alerts_notifications",
            "Notifications that a channel has taken, repeats included.",
            ["channel"],
            registry=self.registry,
        )
        self.active = Gauge(
            "tallyweir_alerts_active",
            "1 while this process watches, 0 while it stands by.",
            registry=self.registry,
        )
        self.failures = Counter(
            "tallyweir_alerts_failures",
            "Looks and notifications that an error kept from being done.",
            ["error_code"],
            registry=self.registry,
        )
