"""Every query of Prometheus' alerts and Grafana's dashboard."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from tallyweir.services.local.embedded.state_directory import ROOT

OBSERVABILITY = ROOT / "docker" / "observability"
PROMETHEUS = OBSERVABILITY / "prometheus"

_METRIC = re.compile(r"\btallyweir_\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitoringQuery:
    """One query.

    Attributes:
        place: The alert, panel or variable that asks it.
        text: Of the query; the dashboard's have variables of Grafana in them.
        shown: The text that shows labels of the answer.
    """

    place: str
    text: str
    shown: str

    @property
    def metrics(self) -> set[str]:
        """Names of the metrics that it asks for."""
        return set(_METRIC.findall(self.text))


def dashboard() -> dict[str, Any]:
    """Return Grafana's dashboard."""
    path = OBSERVABILITY / "grafana" / "dashboards" / "tallyweir.json"
    return dict(json.loads(path.read_text("utf-8")))


def alerts() -> list[dict[str, Any]]:
    """Return the rules of all alerts."""
    groups = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alert_queries() -> Iterator[MonitoringQuery]:
    """Yield what the alerts ask."""
    for rule in alerts():
        shown = " ".join(rule["annotations"].values())
        yield MonitoringQuery(place=rule["alert"], text=rule["expr"], shown=shown)


def panel_queries() -> Iterator[MonitoringQuery]:
    """Yield what the dashboard's panels ask."""
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", []):
            yield MonitoringQuery(
                place=panel["title"], text=target["expr"], shown=target["legendFormat"]
            )


def variable_queries() -> Iterator[MonitoringQuery]:
    """Yield what the dashboard's variables ask, in Grafana's own language."""
    for variable in dashboard()["templating"]["list"]:
        yield MonitoringQuery(
            place=variable["name"], text=variable["query"]["query"], shown=""
        )
