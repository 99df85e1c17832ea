"""The relay's metrics for Prometheus; docs/metrics.md has the formulas."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge


class RelayMetrics:
    """The relay's own metrics, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._shown: set[str] = set()
        self.messages = Counter(
            "tallyweir_relay_messages",
            "Messages that the broker has acknowledged, repeats included.",
            ["pipeline", "stream"],
            registry=self.registry,
        )
        self.backlog = Gauge(
            "tallyweir_relay_backlog_rows",
            "Rows of the home database that are still to be sent.",
            ["pipeline", "stream"],
            registry=self.registry,
        )
        self.drift = Gauge(
            "tallyweir_offset_mirror_drift_records",
            "Records by which the advisory group is off after the last round.",
            ["pipeline"],
            registry=self.registry,
        )
        self.active = Gauge(
            "tallyweir_relay_active",
            "1 while this process is the home's relay, 0 while it stands by.",
            registry=self.registry,
        )
        self.failures = Counter(
            "tallyweir_relay_failures",
            "Rounds of a pipeline, or of all, that an error cut short.",
            ["error_code"],
            registry=self.registry,
        )

    def show_only(self, pipelines: Iterable[str]) -> None:
        """Remove the gauges of pipelines that are gone; they would keep old values."""
        known = set(pipelines)
        for gone in self._shown - known:
            self.backlog.remove_by_labels({"pipeline": gone})
            self.drift.remove(gone)
        self._shown = known
