"""Reads the phases of batches from the metrics of a running driver."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection

from prometheus_client.parser import text_string_to_metric_families

from tallyweir.services.dev.bench.world.bench_world import incomplete_run

_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """Sums over the batches that a driver has published.

    Attributes:
        batches: Number of batches.
        read: Number of events in them.
        seconds: Seconds by phase: plan, stage, publish.
    """

    batches: int
    read: int
    seconds: Mapping[str, float]


def read_phases(port: int) -> Phases:
    """Read the phases from a driver that serves its metrics on this machine."""
    connection = HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    finally:
        connection.close()
    return parse_phases(text)


def parse_phases(text: str) -> Phases:
    """Parse the phases from metrics in Prometheus' text format."""
    sums: defaultdict[str, float] = defaultdict(float)
    seconds: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            sums[sample.name] += sample.value
            if sample.name == "tallyweir_batch_phase_duration_seconds_sum":
                seconds[sample.labels["phase"]] = sample.value
    # Every batch has each phase once.
    counted = sums["tallyweir_batch_phase_duration_seconds_count"]
    return Phases(
        batches=round(counted / len(seconds)) if seconds else 0,
        read=round(sums["tallyweir_rows_read_total"]),
        seconds=seconds,
    )


def phases_between(before: Phases, after: Phases) -> dict[str, object]:
    """Describe the average batch between two readings.

    Raises:
        FatalError: ``BENCH_INCOMPLETE``: no batch ended between them.
    """
    batches = after.batches - before.batches
    if not batches:
        raise incomplete_run(
            "No batch ended within a round.",
            fix="Measure more --events: a round must be larger than a batch.",
        )
    return {
        "events_per_batch": round((after.read - before.read) / batches),
        "seconds_per_batch": {
            phase: round((seconds - before.seconds.get(phase, 0.0)) / batches, 3)
            for phase, seconds in after.seconds.items()
        },
    }
