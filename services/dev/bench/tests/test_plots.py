"""The figures of the commands that have a picture can be drawn."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as ET

import pytest

from tallyweir.services.dev.bench.plots import PLOTS, draw
from tallyweir.services.dev.bench.scale import AXES

_RATES = {"events_per_second": 90, "cold_events_per_second": 60}
_POINT = {**_RATES, "cpu_seconds_per_million": {"jvm": 6.42, "postgres": 2.5}}
_BYTES = {"log_bytes_per_event": 208}
_OF_THE_CATALOG = {
    "probe_us": 0.1,
    "append_us": 0.6,
    "postgres_bytes_per_id": 24.3,
    "memory_bytes_per_id": 2.1,
    "first_answer_seconds": {"recent": 0.5, "of_all_ages": 0.7},
}
_FIGURES: dict[str, dict[str, Any]] = {
    "throughput": {
        "cold": {"events_per_second": 105, "peers": {"quix_at_least_once": 33}},
        "warm": {"events_per_second": 137, "peers": {"quix_at_least_once": 34}},
        "guarantees": {"quix_at_least_once": "at least once"},
    },
    "guarantees": {"at_least_once": _RATES, "events": 7},
    "formats": {"formats": {"json": _RATES}, "peers": {"flink_xa": _RATES}},
    "windows": {
        **_RATES,
        "peer": "at least once",
        "peer_events_per_second": 51,
        "peer_cold_events_per_second": 64,
    },
    "cost": {
        "cold": {**_BYTES, "cpu_seconds_per_million": {"jvm": 9.43}},
        "warm": {**_BYTES, "cpu_seconds_per_million": {"jvm": 6.42}},
    },
    "latency": {
        "rate": 5_000,
        "settling_seconds": 30.0,
        "over_time": [
            {"second": 0.0, "p50_ms": 900, "p90_ms": 1_200, "p99_ms": 4_000},
            {"second": 5.0, "p50_ms": 600, "p90_ms": 800, "p99_ms": 950},
        ],
    },
    "soak": {
        "rate": 100_000,
        "settling_seconds": 60.0,
        "over_time": [
            {
                "second": second,
                "events_per_second": 99_000,
                "sent_per_second": 100_000,
                "lag_records": 50_000,
                "memory_bytes": {"jvm": 1_500_000_000, "driver": 200_000_000},
                "catalog_bytes": 500_000_000,
                "computed_bytes": 510_000_000,
            }
            for second in (10, 20, 30)
        ],
    },
    "full-catalog": {
        "ids": 100_000_000,
        "empty": _RATES,
        "full": {"events_per_second": 72, "cold_events_per_second": 51},
    },
    "scale": {
        "axes": {
            axis: [{"value": value, **_POINT} for value in values]
            for axis, values in AXES.items()
        },
    },
    "dedup": {
        "points": [
            {"ids": 1_000_000, **_OF_THE_CATALOG},
            {"ids": 100_000_000, **_OF_THE_CATALOG},
        ],
    },
}
_FIGURES["joins"] = _FIGURES["windows"]
_SAYS = {
    "throughput": {"Tallyweir", "quix at least once", "at least once", "cold", "34"},
    "guarantees": {"at least once", "cold", "warm", "90"},
    "formats": {"json", "flink xa", "a peer, on JSON", "60"},
    "windows": {"Throughput into Postgres", "Tallyweir", "Peer", "at least once", "51"},
    "joins": {"Throughput into Postgres", "Tallyweir", "Peer", "at least once", "51"},
    "cost": {"jvm", "6.42", "208"},
    "latency": {"median", "90 %", "99 %", "latency, ms"},
    "soak": {
        "At 100,000 events/s",
        "Memory that is no file",
        "jvm",
        "driver",
        "waiting",
        "stored",
        "computed",
        "seconds of the load; not compared: the first 60",
    },
    "full-catalog": {"no IDs in the catalog", "100,000,000 IDs in the catalog", "72"},
    "scale": {"Task slots", "Window keys", "jvm", "1M"},
    "dedup": {
        "probe",
        "probe, file, publish",
        "postgres",
        "of_all_ages",
        "100M",
    },
}


@pytest.mark.parametrize("command", PLOTS)
def test_a_picture_says_whose_figures_it_shows(command: str) -> None:
    """Names, guarantees, series and units are in its text."""
    picture = ET.fromstring(draw(command, _FIGURES[command]))
    texts = {(one.text or "").strip() for one in picture.iter()}
    assert _SAYS[command] <= texts


def test_the_same_figures_give_the_same_picture() -> None:
    """So that the repository's pictures change only with their figures."""
    first, second = (draw("latency", _FIGURES["latency"]) for _ in range(2))
    assert first == second
