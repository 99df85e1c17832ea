"""Every ready pipeline, from made-up events in Kafka to rows, as a user starts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from services.embedded.state_directory import (
    ROOT,
    STATE_DIRECTORY_VARIABLE,
    state_directory,
)
from services.endpoints import KAFKA_VARIABLE
from services.templates.template import template_names
from sinks.postgres.audit import verify
from sinks.settings import HOME_DSN_VARIABLE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_EVENTS = 1_000
_FAULTS = ("--duplicates=0.1", "--poison=0.02", "--disorder=0.1", "--seed=7")

#: What each pipeline's windows must hold, told by SQL from the rows of its events.
_WINDOWS = {
    "departures": [
        (
            (
                "SELECT window_start, origin, airline, flights, cancelled, worst_delay "
                "FROM departures_by_hour"
            ),
            (
                "SELECT date_trunc('hour', scheduled_at), origin, name, count(*), "
                "count(*) FILTER (WHERE dep_delay_minutes IS NULL), "
                "max(dep_delay_minutes) FROM departures "
                "JOIN airlines ON code = carrier GROUP BY 1, 2, 3"
            ),
        )
    ],
    "orders-outbox": [
        (
            (
                "SELECT window_start, currency, orders, revenue_cents "
                "FROM revenue_by_minute"
            ),
            (
                "SELECT date_trunc('minute', ordered_at), currency, count(*), "
                "sum(amount_cents) FROM orders GROUP BY 1, 2"
            ),
        ),
        (
            (
                "SELECT event_id, convert_from(key, 'UTF8') FROM tallyweir.outbox "
                "WHERE topic = 'accepted-orders'"
            ),
            "SELECT order_id, customer_id::text FROM orders",
        ),
    ],
    "page-views": [
        (
            "SELECT window_start, page, country, views FROM page_views_by_minute",
            (
                "SELECT date_trunc('minute', viewed_at), page, country, count(*) "
                "FROM page_views GROUP BY 1, 2, 3"
            ),
        )
    ],
    "user-activity": [
        (
            (
                "SELECT window_start, segment, country, action, actions "
                "FROM activity_by_segment"
            ),
            (
                "SELECT date_trunc('minute', acted_at), "
                "coalesce(p.segment, 'unknown'), coalesce(p.country, 'unknown'), "
                "action, count(*) FROM user_activity "
                "LEFT JOIN user_profiles AS p USING (user_id) GROUP BY 1, 2, 3, 4"
            ),
        ),
        (
            "SELECT count(*) > 0 FROM user_activity WHERE registered_on IS NULL",
            "SELECT true",
        ),
    ],
}


@pytest.mark.parametrize("name", template_names())
def test_a_template_counts_its_made_up_events_once(
    name: str, tmp_path: Path, kafka_bootstrap: str, empty_dsn: str
) -> None:
    """Repeats, broken messages and disorder included; its windows hold its rows."""
    for shared in ("jars", "datasets", "class_archive"):
        (tmp_path / shared).symlink_to(state_directory() / shared)
    variables = {
        KAFKA_VARIABLE: kafka_bootstrap,
        HOME_DSN_VARIABLE: empty_dsn,
        STATE_DIRECTORY_VARIABLE: str(tmp_path),
    }
    sent = json.loads(
        _run(
            variables,
            *("emit", "--template", name, f"--events={_EVENTS}", *_FAULTS),
            *("--partitions=4", "--json"),
        )
    )
    _run(variables, "templates", "run", name, "--once")
    with psycopg.connect(empty_dsn) as connection:
        counts = connection.execute(
            "SELECT sum(committed), sum(duplicate), sum(dead), sum(late) "
            "FROM tallyweir.batch_partition"
        ).fetchone()
        assert counts == (
            sent["unique_valid"],
            sum(sent["duplicates"].values()),
            sum(sent["poison"].values()),
            0,
        )
        for kept, told in _WINDOWS[name]:
            rows = _sorted(connection, kept)
            assert rows
            assert rows == _sorted(connection, told)
        assert not verify(connection, name).failed


def _run(variables: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "services.cli", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _sorted(connection: psycopg.Connection[Any], query: str) -> list[tuple[Any, ...]]:
    return sorted(connection.execute(query.encode()).fetchall(), key=repr)
