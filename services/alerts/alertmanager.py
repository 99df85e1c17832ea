"""Sends alerts to Prometheus' Alertmanager, which groups, silences and routes them.

Alertmanager forgets an alert that is not repeated, so the channel sends each one again
well before its end. It identifies an alert by its labels, so a repeat is the same
alert.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from tallyweir.services.alerts.channel import encode
from tallyweir.services.alerts.http_post import address_of, post
from tallyweir.sinks.postgres.alerting.alert import Notification

PATH = "/api/v2/alerts"
_AGAIN_S = 60.0
#: Three repeats may fail before Alertmanager takes an alert for resolved.
_LIVES = timedelta(seconds=4 * _AGAIN_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alertmanager:
    """An Alertmanager.

    Attributes:
        name: Name of the channel.
        url: Its address, without ``/api/v2/alerts``.
    """

    name: str
    url: str = field(repr=False)

    @property
    def again_s(self) -> float | None:
        return _AGAIN_S

    @property
    def address(self) -> tuple[str, int]:
        return address_of(self.url)

    def tell(self, told: Notification, installation: str) -> None:
        alert = {
            "labels": {
                "alertname": told.rule,
                "pipeline": told.pipeline,
                "severity": told.severity.value,
                "installation": installation,
            },
            "annotations": {
                "summary": f"{told.pipeline}: {told.told}",
                "alert": str(told.alert_id),
            },
            "startsAt": told.since.isoformat(),
            "endsAt": (told.resolved_at or told.now + _LIVES).isoformat(),
        }
        post(self.name, self.url.rstrip("/") + PATH, encode([alert]), {})
