"""A hot key slows nothing down that adds events up: nothing is moved by key for it."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import psycopg
import pytest

from integration_tests.harness.driver_world import DriverWorld
from integration_tests.harness.readings import Sent, sent
from integration_tests.harness.window_model import Event, Rules
from integration_tests.harness.window_world import Arrival, WindowWorld

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_PIPELINE = """
    pipeline: readings
    source:
      topic: {topic}
      schema: reading.v1.avsc
      event_id: event_id
      event_time: at
      watermark_delay: 1 hour
    enrich:
      - table: sites
        on: {{site: code}}
        select: {{place: name}}
    outputs:
      - append: {{table: readings}}
      - window:
          table: by_place
          fixed: 1 hour
          by: [place]
          aggregate: {{events: count(*), amounts: approx_count_distinct(amount)}}
      - window:
          table: visits
          session: {{gap: 1 minute}}
          by: [site]
          aggregate: {{events: count(*), p95: 'approx_percentile(amount, 0.95)'}}
"""
_COUNT = 2_000
_SESSIONS = 5_000
#: Seconds between two events; a session ends after one.
_APART = 10


@pytest.mark.long
def test_no_event_is_moved_by_a_key(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """Lookups are broadcast, windows added up where events are: so Spark says."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.write_pipeline(_PIPELINE)
    world.execute(
        "CREATE TABLE sites (code text PRIMARY KEY, name text)",
        "INSERT INTO sites VALUES ('hot', 'roof'), ('other', 'cellar')",
    )
    everything = world.topic.send(_skewed(world))
    log = tmp_path / "events"
    log.mkdir()
    world.run_to_the_end(environment=_event_log(log))
    world.assert_fates(everything)
    (file,) = log.iterdir()
    lines = file.read_text().splitlines(keepends=True)
    plans = [plan for line in lines for plan in _plans(line)]
    assert any("MapInArrow" in plan for plan in plans)
    moved = [
        found
        for plan in plans
        for found in re.findall(r"(?<!Broadcast)Exchange [^\n]+", plan)
    ]
    assert moved == []
    assert any("BroadcastHashJoin" in plan for plan in plans)
    assert _shuffled_bytes(lines) == 0
    hot = "SELECT sum(events) FROM {} WHERE {} = '{}'"
    for table, column, key in (
        ("by_place", "place", "roof"),
        ("visits", "site", "hot"),
    ):
        assert world.value(hot.format(table, column, key)) == _COUNT * 0.9


def _shuffled_bytes(lines: list[str]) -> int:
    """Add up the bytes that tasks wrote for other tasks, by Spark's event log."""
    ended = [json.loads(line) for line in lines if "SparkListenerTaskEnd" in line]
    assert ended
    return sum(
        one["Task Metrics"]["Shuffle Write Metrics"]["Shuffle Bytes Written"]
        for one in ended
    )


def _skewed(world: DriverWorld) -> list[Sent]:
    return [
        sent(
            world.contract,
            event_id=f"n{number}",
            site="hot" if number % 10 else "other",
            amount=number % 100,
            partition=number % 2,
        )
        for number in range(_COUNT)
    ]


def _event_log(directory: Path) -> dict[str, str]:
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": directory.as_uri(),
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
    }
    options = " ".join(f"--conf {name}={value}" for name, value in settings.items())
    return {
        "PYSPARK_SUBMIT_ARGS": f"{options} pyspark-shell",
        # Every batch is for Spark.
        "TALLYWEIR_SMALL_BATCH_OFFSETS_MAX": "0",
    }


def _plans(line: str) -> list[str]:
    if "physicalPlanDescription" not in line:
        return []
    plan = json.loads(line).get("physicalPlanDescription")
    return [plan] if plan else []


def test_a_key_with_thousands_of_open_sessions_is_as_quick_as_many_keys(
    server_dsn: str,
) -> None:
    """Each batch passes its sessions once; in pairs they took 60 times."""
    with psycopg.connect(server_dsn) as connection:
        connection.execute("CREATE SCHEMA IF NOT EXISTS tallyweir_state")
        world = WindowWorld(connection, Rules(gap=1, lateness=_SESSIONS * _APART))
        seconds = {}
        for keys in (_SESSIONS, 1):
            world.empty()
            for sequence in (1, 2):
                began = time.monotonic()
                world.publish(
                    _sparse(keys), None, None, sequence=sequence, planned_at=0
                )
                seconds[keys] = time.monotonic() - began
            assert len(world.open_windows()) == _SESSIONS
        connection.rollback()
    assert seconds[1] < 5 * seconds[_SESSIONS], seconds


def _sparse(keys: int) -> list[Arrival]:
    """Make events of which no two are of one session, in one task."""
    return [
        Arrival(
            history=0,
            task=0,
            event=Event(
                at=number * _APART,
                key=f"k{number % keys}",
                value=1,
                position=(0, number),
            ),
        )
        for number in range(_SESSIONS)
    ]
