"""The numbers of the newest look for Prometheus: the same that the page shows.

Each number is labelled by pipeline. An unknown number has no sample, so a panel shows a
gap and an alert on absence fires. docs/metrics.md has the formulas.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
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

_NUMBERS: Mapping[str, tuple[str, Callable[[Mapping[str, Any]], float | None]]] = {
    "lag_offsets": ("Offsets yet to read.", lambda one: one["lag"]),
    "held_back_offsets": (
        "Offsets behind an open transaction, which cannot be read yet.",
        lambda one: one["held_back"],
    ),
    "catch_up_seconds": (
        "Lag by the last minute's rate.",
        lambda one: one["catch_up_s"],
    ),
    "freshness_seconds": (
        "By which the newest committed event time is behind the home's clock.",
        lambda one: one["freshness_s"],
    ),
    "since_commit_seconds": (
        "Since the last batch was published.",
        lambda one: one["since_commit_s"],
    ),
    "read_per_second": (
        "Records read by the batches of the last minute, by 60.",
        lambda one: one["events_per_second_minute"],
    ),
    "dead_letters_minute": (
        "Dead letters of the batches of the last minute.",
        lambda one: one["minute"]["dead"],
    ),
    "last_batch": ("Number of the last batch.", lambda one: one["last_sequence"]),
    "batches_in_doubt": (
        "Batches that are decided and not committed in every database.",
        lambda one: one["in_doubt"],
    ),
    "verified": (
        "1 if the last verify held, 0 if it did not.",
        lambda one: one["receipt"] and float(one["receipt"]["is_verified"]),
    ),
    "verified_timestamp_seconds": (
        "When the last verify was noted.",
        lambda one: one["receipt"] and _timestamp(one["receipt"]["taken_at"]),
    ),
    "fenced_drivers": (
        "Older drivers that are still connected.",
        lambda one: float(len(one["driver"]["fenced"])) if one["driver"] else None,
    ),
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
        for name, (help_text, read) in {**_NUMBERS, **GAUGE_NUMBERS}.items():
            family = GaugeMetricFamily(
                f"tallyweir_pipeline_{name}", help_text, labels=["pipeline"]
            )
            for one in look.pipelines:
                value = read(one)
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


def _timestamp(moment: datetime) -> float:
    return moment.timestamp()


_Read = Callable[[Mapping[str, Any]], float | None]


def _of(part: str, name: str) -> _Read:
    """Return a reader of one number, for a pipeline that may not be gauged yet."""

    def read(one: Mapping[str, Any]) -> float | None:
        found = one.get(part)
        value: float | None = None if found is None else found[name]
        return value

    return read


def _gauged(name: str) -> _Read:
    return _of("gauges", name)


def _committed(name: str) -> _Read:
    return _of("committed", name)


#: Help text and reader of each gauge, by the end of the metric's name.
GAUGE_NUMBERS: Mapping[str, tuple[str, _Read]] = {
    "latency_p50_seconds": (
        "From Kafka to right before the COMMIT, of half of the last minute's events.",
        _committed("latency_p50_s"),
    ),
    "latency_p95_seconds": (
        "The same of 95 % of them.",
        _committed("latency_p95_s"),
    ),
    "latency_p99_seconds": (
        "The same of 99 % of them.",
        _committed("latency_p99_s"),
    ),
    "ids_looked_up_ratio": (
        "Searches that no filter spared, by IDs asked for in the last minute.",
        _committed("looked_up_share"),
    ),
    "ids_false_positive_ratio": (
        "Those of them that found nothing, by the same IDs.",
        _committed("false_positive_share"),
    ),
    "unread_seconds": (
        "Since Kafka had the oldest record that is not read.",
        _gauged("unread_s"),
    ),
    "headroom_seconds": (
        "Until Kafka deletes the first record that is not read.",
        _gauged("headroom_s"),
    ),
    "prepared_transactions": (
        "Branches that are prepared on the home's server.",
        _gauged("prepared"),
    ),
    "prepared_oldest_seconds": (
        "Age of the oldest of them.",
        _gauged("prepared_s"),
    ),
    "in_doubt_oldest_seconds": (
        "Since the oldest batch was decided that is not committed everywhere.",
        _gauged("in_doubt_s"),
    ),
    "state_bytes": (
        "Size of windows and keyed state.",
        _gauged("state_bytes"),
    ),
    "catalog_ids": (
        "IDs that are remembered.",
        _gauged("catalog_ids"),
    ),
    "catalog_bytes": (
        "Size of the catalog of IDs.",
        _gauged("catalog_bytes"),
    ),
}
