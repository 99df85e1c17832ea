"""The numbers of the newest look for Prometheus: the same that the page shows.

Each number is labelled by pipeline. An unknown number has no sample, so a panel shows a
gap and an alert on absence fires. docs/metrics.md has the formulas.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fastapi import FastAPI, Request, Response
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tallyweir.services.monitor.watcher import Look
from tallyweir.sinks.postgres.audit import PipelineState

#: After this long without a look, the numbers are too old to be of use.
READY_S = 60.0

_Part = Mapping[str, Any]


def _verified(one: _Part) -> float | None:
    return one["receipt"] and float(one["receipt"]["is_verified"])


def _verified_at(one: _Part) -> float | None:
    return one["receipt"] and float(one["receipt"]["taken_at"].timestamp())


def _fenced(one: _Part) -> float | None:
    return one["driver"] and float(len(one["driver"]["fenced"]))


#: Place and help text of each number, by the end of the metric's name. A place is a key
#: of a pipeline in a look, the key of a part and a key in it, or a function.
_NUMBERS: Mapping[str, tuple[str | Callable[[_Part], float | None], str]] = {
    "lag_offsets": ("lag", "Offsets yet to read."),
    "held_back_offsets": (
        "held_back",
        "Offsets behind an open transaction, which cannot be read yet.",
    ),
    "catch_up_seconds": ("catch_up_s", "Lag by the last minute's rate."),
    "freshness_seconds": (
        "freshness_s",
        "By which the newest committed event time is behind the home's clock.",
    ),
    "since_commit_seconds": ("since_commit_s", "Since the last batch was published."),
    "read_per_second": (
        "events_per_second_minute",
        "Records read by the batches of the last minute, by 60.",
    ),
    "dead_letters_minute": (
        "minute.dead",
        "Dead letters of the batches of the last minute.",
    ),
    "last_batch": ("last_sequence", "Number of the last batch."),
    "batches_in_doubt": (
        "in_doubt",
        "Batches that are decided and not committed in every database.",
    ),
    "verified": (_verified, "1 if the last verify held, 0 if it did not."),
    "verified_timestamp_seconds": (_verified_at, "When the last verify was noted."),
    "fenced_drivers": (_fenced, "Older drivers that are still connected."),
    "latency_p50_seconds": (
        "committed.latency_p50_s",
        "From Kafka to right before the COMMIT, of half of the last minute's events.",
    ),
    "latency_p95_seconds": ("committed.latency_p95_s", "The same of 95 % of them."),
    "latency_p99_seconds": ("committed.latency_p99_s", "The same of 99 % of them."),
    "ids_looked_up_ratio": (
        "committed.looked_up_share",
        "Searches that no filter spared, by IDs asked for in the last minute.",
    ),
    "ids_false_positive_ratio": (
        "committed.false_positive_share",
        "Those of them that found nothing, by the same IDs.",
    ),
    "unread_seconds": (
        "gauges.unread_s",
        "Since Kafka had the oldest record that is not read.",
    ),
    "headroom_seconds": (
        "gauges.headroom_s",
        "Until Kafka deletes the first record that is not read.",
    ),
    "prepared_transactions": (
        "gauges.prepared",
        "Branches that are prepared on the home's server.",
    ),
    "prepared_oldest_seconds": ("gauges.prepared_s", "Age of the oldest of them."),
    "in_doubt_oldest_seconds": (
        "gauges.in_doubt_s",
        "Since the oldest batch was decided that is not committed everywhere.",
    ),
    "state_bytes": ("gauges.state_bytes", "Size of windows and keyed state."),
    "catalog_ids": ("gauges.catalog_ids", "IDs that are remembered."),
    "catalog_bytes": ("gauges.catalog_bytes", "Size of the catalog of IDs."),
}


class LookMetrics(Collector):
    """Exports the newest look's numbers at each scrape."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._look: Look | None = None
        self._looked_at = 0.0
        self.registry.register(self)

    def note(self, look: Look) -> None:
        """Keep a look for the next scrape."""
        self._look = look
        self._looked_at = time.monotonic()

    @property
    def is_ready(self) -> bool:
        """Whether there is a recent look."""
        return self._look is not None and time.monotonic() - self._looked_at < READY_S

    def collect(self) -> Iterator[Metric]:
        """Yield every number of every pipeline."""
        look = self._look
        if look is None:
            return
        for name, (place, help_text) in _NUMBERS.items():
            family = GaugeMetricFamily(
                f"tallyweir_pipeline_{name}", help_text, labels=["pipeline"]
            )
            for one in look.pipelines:
                value = _number(one, place)
                if value is not None:
                    family.add_metric([str(one["pipeline"])], float(value))
            yield family
        states = GaugeMetricFamily(
            "tallyweir_pipeline_state",
            "1 for the state that the pipeline is in, 0 for the others.",
            labels=["pipeline", "state"],
        )
        for one in look.pipelines:
            for state in PipelineState:
                labels = [str(one["pipeline"]), state.value]
                states.add_metric(labels, float(one["state"] == state.value))
        yield states
        troubles = GaugeMetricFamily(
            "tallyweir_monitor_troubles", "What the last look could not read."
        )
        troubles.add_metric([], len(look.troubles))
        yield troubles

    def add_to(self, pages: FastAPI) -> None:
        """Add the paths for Prometheus and for health checks.

        They run in the event loop, which no read blocks: a supervisor that gets no
        answer would end the process and the acts at work in it.
        """

        @pages.get("/metrics")
        async def metrics(request: Request) -> Response:
            encode, media_type = choose_encoder(request.headers.get("accept", ""))
            return Response(encode(self.registry), media_type=media_type)

        @pages.get("/livez")
        async def livez() -> Response:
            return Response("alive\n", media_type="text/plain")

        @pages.get("/readyz")
        async def readyz() -> Response:
            status = 200 if self.is_ready else 503
            return Response("looks\n", status_code=status, media_type="text/plain")


def _number(one: _Part, place: str | Callable[[_Part], float | None]) -> float | None:
    """Return a number of a pipeline; None if it is unknown or not gauged yet."""
    if callable(place):
        return place(one)
    part, _, key = place.rpartition(".")
    found = one.get(part) if part else one
    value: float | None = None if found is None else found[key]
    return value
