"""The dashboard of all pipelines asks for all that the monitor serves, and no more."""

from __future__ import annotations

import json
import re

from prometheus_client.metrics_core import Metric

from tallyweir.services.local.embedded.state_directory import ROOT
from tallyweir.services.monitor.look_metrics import LookMetrics
from tallyweir.services.monitor.watcher import Look

_DASHBOARDS = ROOT / "docker" / "observability" / "grafana" / "dashboards"
_LABELS = re.compile(r"{{\s*(\w+)\s*}}|(\w+)=~")


def _served() -> dict[str, set[str]]:
    metrics = LookMetrics()
    metrics.note(Look(number=1, pipelines=(), troubles=()))
    found: list[Metric] = list(metrics.collect())
    return {one.name: set(getattr(one, "_labelnames", ())) for one in found}


def test_every_query_asks_for_a_metric_that_is_served() -> None:
    """With its labels; and nothing that is served is left out."""
    served = _served()
    dashboard = json.loads((_DASHBOARDS / "tallyweir-monitor.json").read_text())
    asked = set()
    for panel in dashboard["panels"]:
        (target,) = panel["targets"]
        (name,) = re.findall(r"\btallyweir_\w+", target["expr"])
        assert name in served, panel["title"]
        asked.add(name)
        used = _LABELS.findall(target["expr"] + target["legendFormat"])
        labels = {one for pair in used for one in pair if one}
        assert labels <= served[name], panel["title"]
    assert asked == set(served)


def test_panels_do_not_lie_on_each_other() -> None:
    """Grafana would move them about."""
    dashboard = json.loads((_DASHBOARDS / "tallyweir-monitor.json").read_text())
    cells = [
        (x, y)
        for panel in dashboard["panels"]
        for grid in [panel["gridPos"]]
        for x in range(grid["x"], grid["x"] + grid["w"])
        for y in range(grid["y"], grid["y"] + grid["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert {x for x, _ in cells} == set(range(24))


def test_the_page_and_the_docs_name_every_metric() -> None:
    """Each number has its formula."""
    told = (ROOT / "docs" / "metrics.md").read_text()
    missing = [name for name in _served() if f"`{name}`" not in told]
    assert not missing
