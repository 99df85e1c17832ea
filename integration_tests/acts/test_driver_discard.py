"""A fork is discarded under its driver, which ends, and is not started anew."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from integration_tests.harness.driver_world import DriverWorld, numbered
from integration_tests.harness.forked_readings import FIRST, forked_file
from tallyweir.sinks.postgres import steering

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_SECOND = forked_file()


@pytest.mark.long
def test_a_driver_of_a_discarded_fork_ends_and_its_file_writes_nowhere(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """A supervisor that starts it again would fill the tables that readers know."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.write_pipeline(FIRST)
    world.topic.send(numbered(world, 0, 100))
    world.run_to_the_end()
    _act(world, "fork")
    world.write_pipeline(_SECOND)
    with world.driver(state=tmp_path / "second") as second:
        world.topic.send(numbered(world, 100, 50))
        shadow = "SELECT count(*) FROM readings__readings_2"
        world.await_value(shadow, lambda rows: rows == 150)
        _act(world, "discard")
        assert second.wait() == 78, second.text
        assert "PIPELINE_DISCARDED" in second.text
    with world.driver(once=True, state=tmp_path / "second") as again:
        assert again.wait() == 78, again.text
        assert "PIPELINE_DISCARDED" in again.text
    with world.batch("history", f"{world.topic.name}:0:0-10") as run:
        assert run.wait() == 78, run.text
        assert "PIPELINE_DISCARDED" in run.text
    assert world.fetch("SELECT pipeline FROM tallyweir.pipeline") == [("readings",)]
    assert world.value("SELECT count(*) FROM readings") == 100
    world.write_pipeline(FIRST)
    world.run_to_the_end()
    assert world.value("SELECT count(*) FROM readings") == 150
    world.assert_verified("readings")


def _act(world: DriverWorld, kind: str) -> None:
    of = "readings" if kind == "fork" else "readings-2"
    request = steering.ActRequest(pipeline=of, kind=kind, reason="a test")
    with psycopg.connect(world.home_dsn) as home:
        if kind == "fork":
            steering.fork(home, request, "readings-2")
        else:
            steering.discard(home, request)
