"""A pipeline is drained by its driver: nothing is read, what is open is closed."""

from __future__ import annotations

import datetime as dt
import signal
from collections.abc import Sequence
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner

from integration_tests.harness.driver_world import SOURCE, DriverWorld, numbered
from integration_tests.harness.keyed_pipeline import (
    KEYED_PIPELINE,
    write_python_pipeline,
)
from integration_tests.harness.readings import NOON, Sent, sent
from tallyweir.services.cli.app import build_app
from tallyweir.sinks.faultpoints import DrainPoint, FaultPoint
from tallyweir.sinks.postgres import audit, steering
from tallyweir.sinks.postgres.audit import PipelineState

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_WINDOWS = (
    SOURCE
    + """
    outputs:
      - append: {{table: readings}}
      - window:
          table: hourly
          fixed: 1 hour
          by: [sensor]
          aggregate: {{readings: count(*), total: sum(amount)}}
          allowed_lateness: 30 minutes
          late: side_table
      - window:
          table: visits
          session: {{gap: 11 minutes}}
          by: [sensor]
          aggregate: {{readings: count(*)}}
          early: off
          late: side_table
"""
)
_OPEN = "SELECT count(*) FROM hourly WHERE NOT final"
_HOURS = (
    "SELECT extract(hour FROM window_start)::int, readings, pane, final FROM hourly "
    "ORDER BY 1"
)


def _at(world: DriverWorld, event_id: str, minutes: float) -> Sent:
    at = NOON + dt.timedelta(minutes=minutes)
    return sent(world.contract, event_id=event_id, at=at, amount=1, partition=0)


def _said(world: DriverWorld, monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    monkeypatch.setenv("TALLYWEIR_HOME_DSN", world.home_dsn)
    monkeypatch.setenv("TALLYWEIR_KAFKA_BOOTSTRAP", world.topic.bootstrap)
    arguments = ["drain", "readings", "--reason", "a test", *words]
    result = CliRunner().invoke(build_app(), arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def _state(world: DriverWorld) -> PipelineState:
    with psycopg.connect(world.home_dsn) as home:
        return audit.read_status(home, "readings").state(0)


@pytest.fixture
def world(tmp_path: Path, kafka_bootstrap: str, home_dsn: str) -> DriverWorld:
    """Nine readings, ten minutes apart, and no driver yet."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn, partitions=1)
    world.write_pipeline(_WINDOWS)
    world.topic.send([_at(world, f"a{n}", n * 10) for n in range(9)])
    return world


def test_a_drain_that_closes_windows_leaves_nothing_open(
    world: DriverWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver at work closes them and ends; what is late afterwards is put aside."""
    with world.driver() as driver:
        world.await_read(9)
        assert world.value(_OPEN) == 2
        dry = _said(world, monkeypatch, "--close-windows", "--dry-run")
        # 14:00 and half an hour; visits are over at 13:31.
        assert "14:30:00" in dry
        assert "Nothing was changed" in dry
        assert _state(world) is PipelineState.CAUGHT_UP
        said = _said(world, monkeypatch, "--close-windows")
        assert "verified" in said
        assert driver.wait() == 0, driver.text
    assert _state(world) is PipelineState.DRAINED
    assert world.fetch(_HOURS) == [
        (12, 6, "on_time", True),
        (13, 3, "on_time", True),
    ]
    assert world.fetch("SELECT readings, final FROM visits") == [(9, True)]
    assert world.value("SELECT count(*) FROM tallyweir.drain") == 1
    # Another driver would wait for whoever resumes.
    with psycopg.connect(world.home_dsn) as home:
        steering.resume(home, "readings")
    world.topic.send([_at(world, "b0", 100), _at(world, "b1", 170)])
    world.run_to_the_end()
    late = world.fetch("SELECT output_table, event_id FROM tallyweir.late_event")
    assert sorted(late) == [("hourly", "b0"), ("visits", "b0")]
    assert world.value("SELECT readings FROM hourly WHERE NOT final") == 1
    world.assert_verified()


@pytest.mark.long
def test_a_drain_that_keeps_windows_goes_on_as_if_nothing_had_been(
    world: DriverWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was open takes the events that come after the drain."""
    with world.driver() as driver:
        world.await_read(9)
        assert "verified" in _said(world, monkeypatch, "--keep-windows")
        assert driver.wait() == 0, driver.text
    assert world.value(_OPEN) == 2
    world.topic.send([_at(world, "b0", 100)])
    with psycopg.connect(world.home_dsn) as home:
        steering.resume(home, "readings")
    world.run_to_the_end()
    assert world.fetch(_HOURS) == [
        (12, 6, "early", False),
        (13, 4, "early", False),
    ]
    world.assert_verified()


#: One after the other, each in a driver of its own; with the alarms fired by then.
_DEATHS = [
    (f"after:{FaultPoint.PLANNED.value}", 0),
    (f"after:{FaultPoint.KEYS_VOTED.value}", 0),
    (f"before:{FaultPoint.DECISION_COMMITTED.value}", 0),
    (f"after:{FaultPoint.DECISION_COMMITTED.value}", 1),
    (f"after:{DrainPoint.WINDOWS_CLOSED.value}", 1),
    (f"before:{DrainPoint.DRAINED.value}", 1),
    (f"after:{DrainPoint.DRAINED.value}", 1),
]


@pytest.mark.parametrize(
    "deaths", [_DEATHS[2:7:2], pytest.param(_DEATHS, marks=pytest.mark.long)], ids=len
)
def test_drivers_that_die_while_they_drain_leave_the_rest_to_the_next(
    tmp_path: Path,
    kafka_bootstrap: str,
    home_dsn: str,
    deaths: Sequence[tuple[str, int]],
) -> None:
    """Asked for while none is there, the timer fires once, and nothing is read."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    write_python_pipeline(world, KEYED_PIPELINE)
    world.topic.send(numbered(world, 0, 60))
    world.run_to_the_end()
    request = steering.ActRequest(pipeline="readings", kind="drain", reason="a test")
    with psycopg.connect(world.home_dsn) as home:
        steering.drain(home, request, closes_windows=True)
    world.topic.send(numbered(world, 60, 40))
    alarms = "SELECT count(*) FROM totals WHERE what = 'silent'"
    for death, fired in deaths:
        assert _state(world) is PipelineState.DRAINING
        with world.driver(fault=f"{death}:1:SIGKILL") as driver:
            assert driver.wait() == -signal.SIGKILL, driver.text
        assert world.value(alarms) == fired, death
        world.assert_verified()
    assert _state(world) is PipelineState.DRAINED
    assert world.value("SELECT sum(read) FROM tallyweir.batch_partition") == 60
    left = "SELECT count(*) FROM tallyweir.keyed_timer WHERE clock = 'event'"
    assert world.value(left) == 0
