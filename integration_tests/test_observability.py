"""Prometheus' alerts and Grafana's dashboard ask for metrics that exist, and work.

promtool is in Debian's package ``prometheus``.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from integration_tests.harness.installed_program import installed_program
from services.embedded.state_directory import ROOT

_OBSERVABILITY = ROOT / "docker" / "observability"
_PROMETHEUS = _OBSERVABILITY / "prometheus"
_DASHBOARDS = _OBSERVABILITY / "grafana" / "dashboards"

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

_NAME = re.compile(r"\btallyweir_\w+")
_SUFFIX = re.compile(r"_(bucket|sum|count)$")
_BY = re.compile(r"\b(?:by|on) \(([^)]*)\)")
_MATCHER = re.compile(r"(\w+)=~?\"")
_LEGEND = re.compile(r"{{\s*(?:\$labels\.)?(\w+)\s*}}")


def _dashboard() -> dict[str, Any]:
    text = (_DASHBOARDS / "tallyweir.json").read_text()
    return dict(json.loads(text))


def _alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load((_PROMETHEUS / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def _queries() -> Iterator[tuple[str, str, str]]:
    """Where a query is, the query, and the text that shows its labels."""
    for rule in _alerts():
        yield rule["alert"], rule["expr"], " ".join(rule["annotations"].values())
    for panel in _dashboard()["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"], target["legendFormat"]
    for variable in _dashboard()["templating"]["list"]:
        yield variable["name"], variable["query"]["query"], ""


@pytest.fixture(scope="module")
def promtool() -> str:
    """The program."""
    return installed_program(
        "promtool",
        otherwise="Prometheus' configuration and alerts, because promtool is neither "
        "on PATH nor in .tallyweir/bin; it is in Debian's prometheus",
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "config", "prometheus.yml"),
        ("check", "rules", "--lint=all", "--lint-fatal", "alerts.yml"),
        ("test", "rules", "alerts_test.yml"),
    ],
    ids=[
        "the configuration is valid",
        "alerts are valid",
        "alerts fire when they must",
    ],
)
def test_promtool_finds_nothing_wrong(
    promtool: str, arguments: tuple[str, ...]
) -> None:
    """The last one has a series for each alert, and one that must not raise it."""
    done = subprocess.run(
        [promtool, *arguments],
        cwd=_PROMETHEUS,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tried_in_both_ways() -> None:
    """An alert without a test of its own may never fire."""
    tests = yaml.safe_load((_PROMETHEUS / "alerts_test.yml").read_text())["tests"]
    names = {rule["alert"] for rule in _alerts()}
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
    for place, query, shown in _queries():
        names = {_SUFFIX.sub("", name) for name in _NAME.findall(query)}
        asked |= names
        assert names <= set(_METRICS), place
        labels = set().union(_EVERYWHERE, *(_METRICS[name] for name in names))
        groups = [label for group in _BY.findall(query) for label in group.split(",")]
        used = {label.strip() for label in groups}
        used |= set(_MATCHER.findall(query)) | set(_LEGEND.findall(shown))
        assert used <= labels, place
    assert asked == set(_METRICS), "somebody looks at every metric of the list"


def test_the_dashboard_is_one_that_grafana_takes() -> None:
    """Ids are unique, panels do not lie on each other, and the source is provided."""
    dashboard = _dashboard()
    panels = dashboard["panels"]
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
    provisioning = _OBSERVABILITY / "grafana" / "provisioning"
    (source,) = yaml.safe_load(
        (provisioning / "datasources" / "prometheus.yaml").read_text()
    )["datasources"]
    used = {panel["datasource"]["uid"] for panel in panels if "datasource" in panel}
    assert {source["uid"]} == used


def test_every_process_is_scraped_where_it_serves() -> None:
    """Ingest on its own port, everything else on 8081."""
    (job,) = yaml.safe_load((_PROMETHEUS / "prometheus.yml").read_text())[
        "scrape_configs"
    ]
    targets = {
        config["labels"]["process"]: config["targets"]
        for config in job["static_configs"]
    }
    assert {
        "ingest": ["ingest:8080"],
        "driver": ["driver:8081"],
        "relay": ["relay:8081"],
        "resolver": ["resolver:8081"],
    } == targets
