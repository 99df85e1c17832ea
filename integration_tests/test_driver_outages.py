"""Servers that die under a running driver: it waits, goes on, and counts exactly."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from integration_tests.harness.driver_world import DriverWorld, numbered
from services.embedded.kafka import EmbeddedKafka
from services.embedded.postgres import EmbeddedPostgres

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_the_driver_outlives_its_servers(tmp_path: Path) -> None:
    """Postgres and then Kafka are killed in mid-batch and started again."""
    kafka = EmbeddedKafka(tmp_path / "kafka")
    postgres = EmbeddedPostgres(tmp_path / "postgres")
    try:
        kafka.start()
        postgres.start()
        _kill_servers_under_a_driver(tmp_path, kafka, postgres)
    finally:
        kafka.stop()
        postgres.stop()


def _kill_servers_under_a_driver(
    directory: Path, kafka: EmbeddedKafka, postgres: EmbeddedPostgres
) -> None:
    world = DriverWorld(directory, kafka.bootstrap, postgres.dsn)
    everything = world.topic.send(numbered(world, 0, 3_000))
    with world.driver(batch=100) as driver:
        driver.wait_for("batch published")
        driver.wait_for("batch planned")
        # Immediate shutdown: as after a crash, staging is empty at the next start.
        postgres.daemon.stop(signal.SIGQUIT, deadline_s=30)
        driver.wait_for("starting over")
        postgres.start()
        _await_read(world, 3_000)

        everything |= world.topic.send(numbered(world, 3_000, 3_000))
        driver.wait_for("batch published")
        kafka.daemon.stop(signal.SIGKILL, deadline_s=30)
        driver.wait_for("starting over")
        kafka.start()
        everything |= world.topic.send(numbered(world, 6_000, 100))
        _await_read(world, 6_100)
        driver.send(signal.SIGTERM)
        assert driver.wait() == 0, driver.text
    assert "Traceback" not in driver.text
    world.assert_fates(everything)


def _await_read(world: DriverWorld, records: int) -> None:
    world.await_value(
        "SELECT sum(read) FROM tallyweir.batch_partition", lambda n: n == records
    )
