"""Figures of benchmarks are printed for people: points as tables, the rest by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from tallyweir.services.cli.app import build_app
from tallyweir.services.dev.bench import cost

_FIGURES = {
    "events": 1_000_000,
    "warm": {"cpu_seconds_per_million": {"jvm": 6.42}},
    "axes": {"slots": [{"value": 2, "cost": {"jvm": 1}}, {"value": 40, "cost": {}}]},
    "verified": True,
    "failed": {},
    "over_time": [{"second": 0.0}],
}


def _measure(
    failed: dict[str, str],
) -> Callable[..., dict[str, Any]]:
    return lambda **_: {**_FIGURES, "failed": failed}


def test_every_figure_is_printed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A point may lack a part that others have."""
    monkeypatch.setattr(cost, "measure", _measure({}))
    result = CliRunner().invoke(build_app(), ["bench", "cost"])
    assert result.exit_code == 0, result.output
    lines = [re.sub(r"\s+", " ", line) for line in result.stdout.splitlines()]
    assert lines == [
        "events: 1,000,000",
        "warm.cpu_seconds_per_million.jvm: 6.42",
        "axes.slots:",
        "value cost.jvm",
        "2 1",
        "40",
        "verified: True",
        "over_time: --json and --plot have it",
    ]


def test_a_part_without_figures_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are printed all the same."""
    monkeypatch.setattr(cost, "measure", _measure({"peer": "BENCH_INCOMPLETE: it"}))
    result = CliRunner().invoke(build_app(), ["bench", "cost"])
    assert result.exit_code == 70
    assert "failed.peer: BENCH_INCOMPLETE: it" in result.stdout
    assert "events: 1,000,000" in result.stdout
