"""The service's metrics, by Prometheus' conventions."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

ACCEPTED = "accepted"
REFUSED = "refused"
UNKNOWN = "unknown"


class IngestMetrics:
    """The service's metrics, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "tallyweir_ingest_requests",
            "Requests for events, by the status of their answers.",
            ["status"],
            registry=self.registry,
        )
        self.events = Counter(
            "tallyweir_ingest_events",
            "Events, by what became of them.",
            ["topic", "outcome"],
            registry=self.registry,
        )
        self.refusals = Counter(
            "tallyweir_ingest_refusals",
            "Requests and events that were not taken, by the code of the reason.",
            ["code"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "tallyweir_ingest_request_duration_seconds",
            "From the headers of a request for events to its answer.",
            registry=self.registry,
            buckets=(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20),
        )
        self.key_reload_failures = Counter(
            "tallyweir_ingest_key_reload_failures",
            "Changes of the keys file that were not valid; the former keys stayed.",
            registry=self.registry,
        )
        self.key_reload_timestamp = Gauge(
            "tallyweir_ingest_key_reload_timestamp_seconds",
            "When the keys in force were read.",
            registry=self.registry,
        )
        self.ready = Gauge(
            "tallyweir_ingest_ready",
            "1 while the broker answers and has all topics.",
            registry=self.registry,
        )

        # Finding a labelled metric costs more than counting.
        self._request_counts: dict[int, Counter] = {}
        self._event_counts: dict[tuple[str, str], Counter] = {}

    def count_request(self, status: int, seconds: float) -> None:
        """Count an answer."""
        counter = self._request_counts.get(status)
        if counter is None:
            counter = self._request_counts[status] = self.requests.labels(str(status))
        counter.inc()
        self.seconds.observe(seconds)

    def count_events(self, topic: str, outcome: str, count: int) -> None:
        """Count events of one outcome."""
        counter = self._event_counts.get((topic, outcome))
        if counter is None:
            counter = self.events.labels(topic, outcome)
            self._event_counts[topic, outcome] = counter
        counter.inc(count)

    def watch(
        self, waiting_events: Callable[[], int], bytes_: Callable[[], int]
    ) -> None:
        """Show how much is in flight at the time of each scrape."""
        Gauge(
            "tallyweir_ingest_waiting_events",
            "Events that wait for the broker's report.",
            registry=self.registry,
        ).set_function(waiting_events)
        Gauge(
            "tallyweir_ingest_in_flight_bytes",
            "Bodies of requests that are being answered.",
            registry=self.registry,
        ).set_function(bytes_)
