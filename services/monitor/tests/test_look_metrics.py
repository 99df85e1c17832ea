"""Prometheus gets the numbers of the newest look, and nothing for what is unknown."""

from __future__ import annotations

from datetime import UTC, datetime
from inspect import iscoroutinefunction
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from prometheus_client import generate_latest

from tallyweir.services.monitor.look_metrics import LookMetrics
from tallyweir.services.monitor.watcher import Look

_ONE: dict[str, Any] = {
    "pipeline": "departures",
    "state": "FENCED",
    "lag": None,
    "held_back": None,
    "catch_up_s": None,
    "freshness_s": 2.5,
    "since_commit_s": 1.0,
    "events_per_second_minute": 100.0,
    "last_sequence": 7,
    "in_doubt": 0,
    "minute": {"dead": 3},
    "receipt": {"is_verified": True, "taken_at": datetime(2026, 3, 1, tzinfo=UTC)},
    "driver": {"fenced": (3,)},
}


def _scraped(*pipelines: dict[str, Any]) -> list[str]:
    metrics = LookMetrics()
    metrics.note(Look(number=1, pipelines=pipelines, troubles=()))
    lines = generate_latest(metrics.registry).decode().splitlines()
    return [line for line in lines if not line.startswith("#")]


def test_each_number_is_labelled_by_its_pipeline() -> None:
    """As the page shows it."""
    lines = _scraped(_ONE, {**_ONE, "pipeline": "orders", "lag": 4, "driver": None})
    assert 'tallyweir_pipeline_dead_letters_minute{pipeline="departures"} 3.0' in lines
    assert 'tallyweir_pipeline_lag_offsets{pipeline="orders"} 4.0' in lines
    assert 'tallyweir_pipeline_fenced_drivers{pipeline="departures"} 1.0' in lines
    assert 'tallyweir_pipeline_verified{pipeline="orders"} 1.0' in lines


def test_what_is_unknown_has_no_sample() -> None:
    """A 0 would be taken for one."""
    lines = _scraped({**_ONE, "receipt": None})
    unknown = ("lag_offsets", "catch_up", "verified")
    assert not [line for line in lines if any(name in line for name in unknown)]


def test_a_pipeline_is_in_one_state() -> None:
    """So that a sum over states is the number of pipelines."""
    states = [line for line in _scraped(_ONE) if "pipeline_state" in line]
    assert [line for line in states if line.endswith(" 1.0")] == [
        'tallyweir_pipeline_state{pipeline="departures",state="FENCED"} 1.0'
    ]


def test_who_asks_whether_it_lives_waits_for_no_thread() -> None:
    """Reads of a slow home database may have them all."""
    pages = FastAPI()
    LookMetrics().add_to(pages)
    added = {
        route.path: iscoroutinefunction(route.endpoint)
        for route in pages.routes
        if isinstance(route, APIRoute)
    }
    assert added == {"/metrics": True, "/livez": True, "/readyz": True}


def test_it_is_ready_with_the_first_look() -> None:
    """Before it there is nothing to show."""
    metrics = LookMetrics()
    assert not metrics.is_ready
    metrics.note(Look(number=1, pipelines=(), troubles=()))
    assert metrics.is_ready
