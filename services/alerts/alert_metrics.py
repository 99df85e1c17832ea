"""The alerts service's metrics for Prometheus; docs/metrics.md has the formulas."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


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
