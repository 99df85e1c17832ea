"""Prometheus' alerts and Grafana's dashboard ask for metrics that processes serve.

``containers/test_prometheus.py`` asks a real Prometheus the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from integration_tests.harness.monitoring_queries import (
    OBSERVABILITY,
    PROMETHEUS,
    alert_queries,
    alerts,
    dashboard,
    panel_queries,
    variable_queries,
)
from tallyweir.services.local.embedded.state_directory import ROOT

#: What processes serve, with their labels; a histogram ends with its unit.
_METRICS: dict[str, set[str]] = {
    "tallyweir_batch_phase_duration_seconds": {"pipeline", "phase"},
    "tallyweir_batches_total": {"pipeline", "outcome"},
    "tallyweir_build_info": {"version", "python"},
    "tallyweir_data_freshness_seconds": {"pipeline"},
    "tallyweir_dead_letters_total": {"pipeline", "reason"},
    "tallyweir_epoch": {"pipeline"},
    "tallyweir_expired_events_total": {"pipeline"},
    "tallyweir_filtered_events_total": {"pipeline"},
    "tallyweir_ingest_request_duration_seconds": set(),
    "tallyweir_ingest_requests_total": {"status"},
    "tallyweir_last_commit_timestamp_seconds": {"pipeline"},
    "tallyweir_late_events_total": {"pipeline"},
    "tallyweir_offset_mirror_drift_records": {"pipeline"},
    "tallyweir_pipeline_info": {"pipeline", "guarantee"},
    "tallyweir_prepared_transaction_oldest_age_seconds": {"database"},
    "tallyweir_prepared_transactions": {"database"},
    "tallyweir_relay_backlog_rows": {"pipeline", "stream"},
    "tallyweir_relay_messages_total": {"pipeline", "stream"},
    "tallyweir_rows_committed_total": {"pipeline"},
    "tallyweir_rows_duplicate_total": {"pipeline"},
    "tallyweir_rows_read_total": {"pipeline"},
    "tallyweir_source_lag_records": {"pipeline", "topic", "partition"},
}
#: What Prometheus adds to whatever it scrapes, and a histogram's own.
_EVERYWHERE = {"job", "instance", "process", "le"}

_SUFFIX = re.compile(r"_(bucket|sum|count)$")
_BY = re.compile(r"\b(?:by|on) \(([^)]*)\)")
_MATCHER = re.compile(r"(\w+)=~?\"")
_LEGEND = re.compile(r"{{\s*(?:\$labels\.)?(\w+)\s*}}")


def test_every_alert_is_tried_in_both_ways() -> None:
    """An alert without a test of its own may never fire."""
    tests = yaml.safe_load((PROMETHEUS / "alerts_test.yml").read_text())["tests"]
    names = {rule["alert"] for rule in alerts()}
    silent = {
        one["alertname"]
        for test in tests
        for one in test.get("alert_rule_test", [])
        if not one.get("exp_alerts")
    }
    fired = {
        name
        for test in tests
        for one in test.get("promql_expr_test", [])
        for sample in one["exp_samples"]
        for name in re.findall(r'alertname="(\w+)"', sample["labels"])
    }
    assert names == silent
    assert names == fired


def test_every_query_asks_for_metrics_that_exist() -> None:
    """A name or label that nobody serves gives an empty panel and a silent alert."""
    asked = set()
    for query in (*alert_queries(), *panel_queries(), *variable_queries()):
        names = {_SUFFIX.sub("", name) for name in query.metrics}
        asked |= names
        assert names <= set(_METRICS), query.place
        labels = set().union(_EVERYWHERE, *(_METRICS[name] for name in names))
        groups = ",".join(_BY.findall(query.text))
        used = {label.strip() for label in groups.split(",") if label}
        used |= set(_MATCHER.findall(query.text)) | set(_LEGEND.findall(query.shown))
        assert used <= labels, query.place
    assert asked == set(_METRICS), "somebody looks at every metric of the list"


def test_the_dashboard_is_one_that_grafana_takes() -> None:
    """Ids are unique, panels do not lie on each other, and the source is provided."""
    panels = dashboard()["panels"]
    ids = [panel["id"] for panel in panels]
    assert len(set(ids)) == len(ids)
    cells = [
        (x, y)
        for panel in panels
        for grid in [panel["gridPos"]]
        for x in range(grid["x"], grid["x"] + grid["w"])
        for y in range(grid["y"], grid["y"] + grid["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert {x for x, _ in cells} == set(range(24))
    provisioning = OBSERVABILITY / "grafana" / "provisioning"
    (source,) = yaml.safe_load(
        (provisioning / "datasources" / "prometheus.yaml").read_text()
    )["datasources"]
    used = {panel["datasource"]["uid"] for panel in panels if "datasource" in panel}
    assert {source["uid"]} == used


def test_every_process_is_scraped_where_it_serves() -> None:
    """Ingest and the monitor on their own ports, everything else on 8081.

    Those are the services that are told a port for their metrics.
    """
    (job,) = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())[
        "scrape_configs"
    ]
    targets = {
        config["labels"]["process"]: config["targets"]
        for config in job["static_configs"]
    }
    assert {
        "ingest": ["ingest:8080"],
        "driver": ["driver:8081"],
        "monitor": ["monitor:8090"],
        "relay": ["relay:8081"],
        "resolver": ["resolver:8081"],
        "alerts": ["alerts:8081"],
    } == targets
    services = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())[
        "services"
    ]
    assert {f"{name}:8081" for name, one in services.items() if _serves(one)} == {
        target for found in targets.values() for target in found if "8081" in target
    }


def _serves(service: Mapping[str, Any]) -> bool:
    return "TALLYWEIR_METRICS_PORT" in (service.get("environment") or {})
