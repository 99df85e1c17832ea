"""A real Prometheus with our configuration, against the running system."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from integration_tests.containers.deployment import Deployment
from integration_tests.harness.monitoring_queries import (
    PROMETHEUS,
    alert_queries,
    alerts,
    panel_queries,
    variable_queries,
)
from tallyweir.services.local.embedded.state_directory import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

_WAIT_S = 120.0
_POLL_S = 0.5
#: What Grafana puts in before it asks.
_VARIABLES = {"$pipeline": ".*", "$__rate_interval": "1m"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "config", "/etc/prometheus/prometheus.yml"),
        ("check", "rules", "--lint=all", "--lint-fatal", "/etc/prometheus/alerts.yml"),
        ("test", "rules", "/etc/prometheus/alerts_test.yml"),
    ],
    ids=[
        "the configuration is valid",
        "alerts are valid",
        "alerts fire when they must",
    ],
)
def test_promtool_finds_nothing_wrong(arguments: tuple[str, ...]) -> None:
    """The last one has a series for each alert, and one that must not raise it."""
    compose = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text("utf-8"))
    image = compose["services"]["prometheus"]["image"]
    mount = f"--volume={PROMETHEUS}:/etc/prometheus:ro"
    run = ("docker", "run", "--rm", "--network=none", mount, "--entrypoint=promtool")
    done = subprocess.run(
        [*run, image, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_finds_all_that_alerts_and_dashboard_ask_for(
    system: Deployment,
) -> None:
    """It reaches each process, and each query is one that it takes and has data for."""
    system.start("prometheus")
    # A driver that has just started has no batch and no dead letter to tell of, and
    # no event whose age it could tell.
    system.run_python("one_event")
    _send_without_a_key(system)
    targets = {"ingest", "driver", "relay", "resolver", "monitor", "alerts"}
    _await(lambda: targets == _processes_that_are_up(system), "all targets to be up")
    queries = [*alert_queries(), *panel_queries(), *variable_queries()]
    wanted = set().union(*(query.metrics for query in queries))
    _await(lambda: wanted <= _metrics(system), f"metrics of {sorted(wanted)}")
    for query in (*alert_queries(), *panel_queries()):
        text = query.text
        for name, value in _VARIABLES.items():
            text = text.replace(name, value)
        assert _ask(system, "query", query=text)["resultType"] == "vector", query.place
    _await(lambda: _rules_that_work(system) == len(alerts()), "all alerts evaluated")


def _send_without_a_key(system: Deployment) -> None:
    url = f"http://{system.address('ingest')}:8080/v1/events/flight-departures"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(urllib.request.Request(url, data=b"{}"))


def _processes_that_are_up(system: Deployment) -> set[str]:
    found = _ask(system, "targets")["activeTargets"]
    return {t["labels"]["process"] for t in found if t["health"] == "up"}


def _metrics(system: Deployment) -> set[str]:
    return set(_ask(system, "label/__name__/values"))


def _rules_that_work(system: Deployment) -> int:
    groups = _ask(system, "rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert [rule for rule in rules if rule["health"] == "err"] == []
    return sum(rule["health"] == "ok" for rule in rules)


def _ask(system: Deployment, what: str, **parameters: str) -> Any:  # noqa: ANN401
    """Ask Prometheus' HTTP API; an error of its is one of the test."""
    given = urllib.parse.urlencode(parameters)
    url = f"http://{system.address('prometheus')}:9090/api/v1/{what}?{given}"
    with urllib.request.urlopen(url, timeout=_WAIT_S) as answer:
        return json.load(answer)["data"]


def _await(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {_WAIT_S:.0f} s for {what}"
        time.sleep(_POLL_S)
