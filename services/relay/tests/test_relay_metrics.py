"""Gauges of a relay are about pipelines that there are."""

from __future__ import annotations

from tallyweir.services.relay.service import RelayMetrics


def test_the_gauges_of_a_pipeline_that_is_gone_are_forgotten() -> None:
    """Nobody would ever change them, and an alert on them would last for ever."""
    metrics = RelayMetrics()

    def shown(pipeline: str) -> list[float | None]:
        of = {"pipeline": pipeline}
        backlog = "tallyweir_relay_backlog_rows"
        drift = "tallyweir_offset_mirror_drift_records"
        return [
            metrics.registry.get_sample_value(backlog, {**of, "stream": "outbox"}),
            metrics.registry.get_sample_value(drift, of),
        ]

    metrics.show_only(["orders", "orders-2"])
    for pipeline in ("orders", "orders-2"):
        metrics.backlog.labels(pipeline, "outbox").set(3)
        metrics.drift.labels(pipeline).set(4)
    metrics.show_only(["orders"])
    assert shown("orders") == [3, 4]
    assert shown("orders-2") == [None, None]
