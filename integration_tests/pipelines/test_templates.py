"""Every ready pipeline, from made-up events in Kafka to rows, as a user starts it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest

from integration_tests.harness.command import run_command
from integration_tests.harness.written_topic import WrittenTopic
from tallyweir.services.local.embedded.state_directory import (
    STATE_DIRECTORY_VARIABLE,
    share_fetched,
)
from tallyweir.services.local.templates.template import read_template, template_names
from tallyweir.services.process.endpoints import KAFKA_VARIABLE
from tallyweir.services.produce.source_section import read_source_section
from tallyweir.sinks.postgres.audit import verify
from tallyweir.sinks.settings import HOME_DSN_VARIABLE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_EVENTS = 1_000
_FAULTS = ("--duplicates=0.1", "--poison=0.02", "--disorder=0.1", "--seed=7")

#: What each pipeline's windows must hold, told by SQL from the rows of its events.
_WINDOWS = {
    "csv-import": [
        ("SELECT count(*) > 0 FROM imported_orders", "SELECT true"),
    ],
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
    "json-orders": [
        (
            (
                "SELECT window_start, customer_country, orders, revenue "
                "FROM json_revenue_by_minute"
            ),
            (
                "SELECT date_trunc('minute', placed_at), customer_country, count(*), "
                "sum(amount) FROM json_orders GROUP BY 1, 2"
            ),
        ),
        (
            "SELECT DISTINCT rest FROM json_orders WHERE rest IS NOT NULL",
            'SELECT \'{"coupon": "SPRING"}\'::jsonb',
        ),
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
        ),
        (
            (
                "SELECT dimensions, sum(value) FILTER (WHERE metric_name = 'views'), "
                "round(sum(value) FILTER (WHERE metric_name = 'value'), 6) "
                "FROM page_view_metrics GROUP BY 1"
            ),
            (
                "SELECT jsonb_build_object('page', page, 'country', country), "
                "count(*)::numeric, round(sum(value)::numeric, 6) "
                "FROM page_views GROUP BY 1"
            ),
        ),
    ],
    "factory": [
        (
            (
                "SELECT machine, at, round(revolutions_per_minute::numeric, 3), "
                "round(mean_temperature::numeric, 6), round(deviation::numeric, 6) "
                "FROM machine_reports WHERE what = 'reading'"
            ),
            (
                "SELECT machine, read_at, round((60 * (revolutions - lag(revolutions) "
                "OVER former) / nullif(extract(epoch FROM read_at - lag(read_at) "
                "OVER former), 0))::numeric, 3), round((avg(temperature) OVER before)"
                "::numeric, 6), round(coalesce(stddev_pop(temperature) OVER before, 0)"
                "::numeric, 6) FROM machine_readings WINDOW former AS (PARTITION BY "
                "machine ORDER BY read_at), before AS (PARTITION BY machine ORDER BY "
                "read_at ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
            ),
        ),
        (
            "SELECT machine, at FROM machine_reports WHERE what = 'odd temperature'",
            (
                "SELECT machine, at FROM (SELECT *, row_number() OVER (PARTITION BY "
                "machine ORDER BY at) AS number FROM machine_reports "
                "WHERE what = 'reading') AS numbered WHERE number > 30 "
                "AND abs(temperature - mean_temperature) > 3 * deviation"
            ),
        ),
    ],
    "sensors": [
        (
            (
                "SELECT window_start, device, readings, round(mean_value::numeric, 6) "
                "FROM sensor_means_5_minutes"
            ),
            (
                "SELECT date_bin('5 minutes', measured_at, 'epoch'), device, count(*), "
                "round(avg(value)::numeric, 6) FROM sensor_readings GROUP BY 1, 2"
            ),
        ),
        (
            (
                "SELECT window_start, device, readings, round(mean_value::numeric, 6) "
                "FROM sensor_means_10_minutes"
            ),
            (
                "SELECT date_bin('2 minutes', measured_at, 'epoch') "
                "- back * interval '2 minutes', device, count(*), "
                "round(avg(value)::numeric, 6) FROM sensor_readings, "
                "generate_series(0, 4) AS back GROUP BY 1, 2"
            ),
        ),
    ],
    "sessions": [
        (
            (
                "SELECT user_id, began_at, seconds, events, pages, "
                "most_frequent_action FROM user_sessions"
            ),
            (
                "SELECT user_id, min(acted_at), extract(epoch FROM max(acted_at) "
                "- min(acted_at))::double precision, count(*), count(DISTINCT page), "
                "mode() WITHIN GROUP (ORDER BY action) FROM (SELECT *, count(*) FILTER "
                "(WHERE begins) OVER by_time AS number FROM (SELECT *, acted_at >= "
                "interval '1 second' + lag(acted_at) OVER by_time AS begins FROM "
                "session_actions WINDOW by_time AS (PARTITION BY user_id ORDER BY "
                "acted_at)) AS marked WINDOW by_time AS (PARTITION BY user_id ORDER BY "
                "acted_at)) AS numbered GROUP BY user_id, number HAVING max(acted_at) "
                "+ interval '1 second' <= (SELECT watermark FROM tallyweir.pipeline)"
            ),
        ),
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


#: The one that every run of the suite tries; the others take long.
_FIRST = "page-views"

#: What is set, beside the defaults, for windows and sessions to end within seconds.
_SETTINGS = {"sessions": ("gap=1", "delay=1")}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == _FIRST else pytest.mark.long)
        for name in template_names()
    ],
)
def test_a_template_counts_its_made_up_events_once(
    name: str, tmp_path: Path, kafka_bootstrap: str, empty_dsn: str
) -> None:
    """Repeats, broken messages and disorder included; its windows hold its rows."""
    share_fetched(tmp_path)
    variables = {
        KAFKA_VARIABLE: kafka_bootstrap,
        HOME_DSN_VARIABLE: empty_dsn,
        STATE_DIRECTORY_VARIABLE: str(tmp_path),
    }
    sent = json.loads(
        run_command(
            *("emit", "--template", name, f"--events={_EVENTS}", *_FAULTS),
            *("--rate=400", "--partitions=4", "--json"),
            variables=variables,
        )
    )
    settings = [f"--set={setting}" for setting in _SETTINGS.get(name, ())]
    run_command("templates", "run", name, "--once", *settings, variables=variables)
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
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
    # Two templates read the same topic, and the broker is that of all tests.
    (topic,) = read_source_section(read_template(name).file).topics
    WrittenTopic(kafka_bootstrap, topic).delete()


def _sorted(connection: psycopg.Connection[Any], query: str) -> list[tuple[Any, ...]]:
    return sorted(connection.execute(query.encode()).fetchall(), key=repr)
