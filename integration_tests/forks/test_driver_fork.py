"""Two versions of a pipeline beside each other, by real drivers, until they switch."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from integration_tests.harness.driver_world import DriverWorld, numbered
from integration_tests.harness.forked_readings import FIRST, forked_file
from tallyweir.sinks.postgres import steering

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_SECOND = forked_file("    filter: amount < 50")


@pytest.mark.long
def test_a_new_version_runs_in_the_shadow_and_takes_the_place(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """Its difference is what the diff shows; at the switch nothing is lost or doubled.

    The first version's driver works all the time, and ends when it finds itself without
    its tables; started again, it goes on in the shadow.
    """
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.write_pipeline(FIRST)
    world.topic.send(numbered(world, 0, 100))
    with world.driver(batch=60) as first:
        _await(world, "readings", 100)
        with psycopg.connect(home_dsn) as home:
            made = steering.fork(home, _request("fork"), "readings-2")
        assert made.rows["readings__readings_2"] == 100
        world.topic.send(numbered(world, 100, 100))
        _await(world, "readings", 200)
        _run_second(world)
        _assert_told_apart(world)
        with psycopg.connect(home_dsn) as home:
            steering.switch(home, _request("switch"), "readings-2")
        assert _count(world, "readings") == 150
        world.topic.send(numbered(world, 200, 50))
        assert first.wait() == 75, first.text
        assert "TABLES_SWITCHED" in first.text
    _run_second(world)
    world.write_pipeline(FIRST)
    world.run_to_the_end()
    assert _count(world, "readings") == 200
    assert _count(world, "readings__readings") == 250
    for table, readings in (("by_sensor", 200), ("by_sensor__readings", 250)):
        assert world.value(f"SELECT sum(readings) FROM {table}") == readings
    for pipeline in ("readings", "readings-2"):
        world.assert_verified(pipeline)


def _assert_told_apart(world: DriverWorld) -> None:
    """Of the hundred that both have read since the fork, half are filtered by one."""
    with psycopg.connect(world.home_dsn) as home:
        found = {d.table: d for d in steering.diff(home, "readings", "readings-2")}
    rows = found["readings"]
    assert (rows.equal, rows.only_front) == (150, 50)
    assert (rows.different, rows.only_shadow) == (0, 0)
    for pipeline in ("readings", "readings-2"):
        world.assert_verified(pipeline)


def _run_second(world: DriverWorld) -> None:
    world.write_pipeline(_SECOND)
    with world.driver(once=True, batch=60, state=world.directory / "second") as second:
        assert second.wait() == 0, second.text


def _await(world: DriverWorld, table: str, rows: int) -> None:
    world.await_value(f"SELECT count(*) FROM {table}", lambda n: n == rows)


def _count(world: DriverWorld, table: str) -> int:
    return int(world.value(f"SELECT count(*) FROM {table}"))


def _request(kind: str) -> steering.ActRequest:
    return steering.ActRequest(pipeline="readings", kind=kind, reason="v2")
