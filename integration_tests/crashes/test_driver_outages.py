"""Servers that die under a running driver: it says so, waits, and counts exactly."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.harness.driver_world import DriverWorld, numbered
from integration_tests.harness.watched_driver import WatchedDriver
from tallyweir.services.local.embedded.kafka import EmbeddedKafka
from tallyweir.services.local.embedded.postgres import EmbeddedPostgres

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

#: A look at the broker, its timeout, and as much again for a machine that is busy.
_TOLD_WITHIN_S = 60.0


@pytest.fixture(scope="module")
def mortal_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """A broker that tests may kill; each starts it again."""
    kafka = EmbeddedKafka(tmp_path_factory.mktemp("mortal-kafka"))
    kafka.start()
    yield kafka
    kafka.stop()


def test_the_driver_outlives_postgres(tmp_path: Path, kafka_bootstrap: str) -> None:
    """Postgres is killed while a batch is staged, and loses what was staged."""
    postgres = EmbeddedPostgres(tmp_path / "postgres")
    postgres.start()
    try:
        world = DriverWorld(tmp_path, kafka_bootstrap, postgres.dsn)
        everything = world.topic.send(numbered(world, 0, 1_000))
        with world.driver(batch=100, fault="after:rows_staged:2:SIGSTOP") as driver:
            driver.wait_until_stopped()
            # Immediate shutdown: as after a crash, staging is empty at the next start.
            postgres.daemon.stop(signal.SIGQUIT, deadline_s=30)
            driver.mark()
            driver.send(signal.SIGCONT)
            driver.wait_for("starting over")
            postgres.start()
            _finish(world, driver, records=1_000)
        world.assert_fates(everything)
    finally:
        postgres.stop()


@pytest.mark.long
def test_an_idle_driver_tells_that_kafka_is_away_and_reads_on_when_it_is_back(
    tmp_path: Path, mortal_kafka: EmbeddedKafka, home_dsn: str
) -> None:
    """Nothing else would show it: an idle query and one without a broker look alike."""
    world = DriverWorld(tmp_path, mortal_kafka.bootstrap, home_dsn)
    everything = world.topic.send(numbered(world, 0, 200))
    with world.driver() as driver:
        world.await_read(200)
        _tell_outage(driver, mortal_kafka)
        everything |= world.topic.send(numbered(world, 200, 100))
        _finish(world, driver, records=300)
    assert "starting over" not in driver.text
    world.assert_fates(everything)


@pytest.mark.long
def test_a_batch_whose_tasks_find_no_broker_waits_for_it(
    tmp_path: Path, mortal_kafka: EmbeddedKafka, home_dsn: str
) -> None:
    """The outage is told meanwhile; nothing is dropped and no epoch is claimed."""
    world = DriverWorld(tmp_path, mortal_kafka.bootstrap, home_dsn)
    everything = world.topic.send(numbered(world, 0, 1_000))
    with world.driver(batch=100, fault="after:planned:1:SIGSTOP") as driver:
        driver.wait_until_stopped()
        _tell_outage(driver, mortal_kafka)
        _finish(world, driver, records=1_000)
    assert "starting over" not in driver.text
    world.assert_fates(everything)


@pytest.mark.long
def test_a_batch_that_cannot_compare_the_topic_any_more_is_dropped_whole(
    tmp_path: Path, mortal_kafka: EmbeddedKafka, home_dsn: str
) -> None:
    """The first batch has fetched the second's events, so no task needs the broker.

    The tries that follow claim no epoch before the broker answers.
    """
    world = DriverWorld(tmp_path, mortal_kafka.bootstrap, home_dsn)
    everything = world.topic.send(numbered(world, 0, 1_000))
    with world.driver(batch=100, fault="after:planned:2:SIGSTOP") as driver:
        driver.wait_until_stopped()
        _kill(mortal_kafka)
        driver.send(signal.SIGCONT)
        for _ in range(2):
            told = driver.wait_for("starting over", timeout_s=_TOLD_WITHIN_S)
            assert "KAFKA_UNREACHABLE" == told["error_code"]
        mortal_kafka.start()
        _finish(world, driver, records=1_000)
    assert 2 == world.value("SELECT count(*) FROM tallyweir.epoch_claim")
    world.assert_fates(everything)


def _kill(kafka: EmbeddedKafka) -> None:
    kafka.daemon.stop(signal.SIGKILL, deadline_s=30)


def _tell_outage(driver: WatchedDriver, kafka: EmbeddedKafka) -> None:
    """Kill the broker, wait until the driver has told it, and start it again."""
    _kill(kafka)
    driver.mark()
    # A driver that a fault has stopped meets the outage when it goes on.
    driver.send(signal.SIGCONT)
    told = driver.wait_for("kafka unreachable", timeout_s=_TOLD_WITHIN_S)
    assert "KAFKA_UNREACHABLE" == told["error_code"]
    kafka.start()
    driver.wait_for("kafka reachable again")


def _finish(world: DriverWorld, driver: WatchedDriver, *, records: int) -> None:
    world.await_read(records)
    driver.send(signal.SIGTERM)
    assert driver.wait() == 0, driver.text
    assert "Traceback" not in driver.text
