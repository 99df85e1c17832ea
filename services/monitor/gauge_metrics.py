"""The gauges for Prometheus; docs/metrics.md has the formulas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

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
