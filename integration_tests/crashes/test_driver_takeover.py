"""Two drivers of one pipeline: the newer one works, the older one stops."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from integration_tests.harness.driver_world import DriverWorld, numbered

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_FENCED = 76


def test_a_newer_driver_fences_the_older_one(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """The older driver stops by itself and says why; nothing is doubled."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    everything = world.topic.send(numbered(world, 0, 3_000))
    with world.driver(batch=100) as older:
        older.wait_for("batch published")
        # On a machine of its own it would have a state directory of its own.
        with world.driver(state=tmp_path / "elsewhere") as newer:
            newer.wait_for("driver started")
            everything |= world.topic.send(numbered(world, 3_000, 200))
            assert older.wait() == _FENCED, older.text
            assert "FENCED" in older.text
            assert "Traceback" not in older.text
            world.await_value("SELECT count(*) FROM readings", lambda n: n >= 3_200)
            newer.send(signal.SIGTERM)
            assert newer.wait() == 0, newer.text
    world.assert_fates(everything)
    epochs = {batch["epoch"] for batch in world.ledger()}
    assert {1, 2} == epochs


@pytest.mark.long
def test_a_driver_that_slept_through_its_succession_is_fenced_when_it_wakes(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """A pause in mid-batch, however long, doubles nothing."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    everything = world.topic.send(numbered(world, 0, 2_000))
    with world.driver(batch=100) as older:
        older.wait_for("batch published")
        older.wait_for("batch planned")
        older.send(signal.SIGSTOP)
        world.run_to_the_end()
        world.assert_fates(everything)
        older.send(signal.SIGCONT)
        assert older.wait() == _FENCED, older.text
        assert "FENCED" in older.text
        assert "Traceback" not in older.text
    world.assert_fates(everything)
