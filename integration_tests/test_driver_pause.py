"""A driver whose pipeline is paused waits, and goes on when it is resumed."""

from __future__ import annotations

import signal
from pathlib import Path

import psycopg
import pytest

from integration_tests.harness.driver_world import DriverWorld, numbered
from sinks.postgres import steering

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_a_driver_at_work_waits_out_a_pause_and_counts_exactly(
    tmp_path: Path, kafka_bootstrap: str, empty_dsn: str
) -> None:
    """What it had staged is dropped; nothing moves until the pause has ended."""
    world = DriverWorld(tmp_path, kafka_bootstrap, empty_dsn)
    everything = world.topic.send(numbered(world, 0, 300))
    with world.driver(batch=100, fault="after:rows_staged:2:SIGSTOP") as driver:
        driver.wait_until_stopped()
        _pause(world)
        stood = world.value("SELECT last_sequence FROM tallyweir.pipeline")
        driver.mark()
        driver.send(signal.SIGCONT)
        driver.wait_for("waiting")
        assert "a test" in driver.text
        assert stood == world.value("SELECT last_sequence FROM tallyweir.pipeline")
        everything |= world.topic.send(numbered(world, 300, 100))
        driver.mark()
        _resume(world)
        driver.wait_for("driver started")
        world.await_read(400)
        driver.send(signal.SIGTERM)
        assert driver.wait() == 0, driver.text
    world.assert_fates(everything)


def _pause(world: DriverWorld) -> None:
    with psycopg.connect(world.home_dsn) as home:
        steering.pause(home, "readings", reason="a test")


def _resume(world: DriverWorld) -> None:
    with psycopg.connect(world.home_dsn) as home:
        steering.resume(home, "readings")
