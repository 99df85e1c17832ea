"""A driver whose pipeline is paused waits, and goes on when it is resumed."""

from __future__ import annotations

import signal
from pathlib import Path

import psycopg
import pytest

from integration_tests.harness.driver_world import PIPELINE, DriverWorld, numbered
from integration_tests.harness.readings import Sent
from tallyweir.sinks.postgres import steering

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_a_driver_at_work_waits_out_a_pause_and_counts_exactly(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """What it had staged is dropped; nothing moves until the pause has ended."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
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


_BROKEN = [Sent(value=b"not avro", fate="BAD_MAGIC")]
_LIMITED = f"{PIPELINE}    dead_letter_limit: {{{{share: 0.2, records: 100}}}}\n"


def test_a_pipeline_with_too_many_dead_letters_pauses_itself(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """It tells why, keeps what it read, leaves the rest in Kafka, and can go on."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.write_pipeline(_LIMITED)
    broken = _BROKEN * 100
    everything = world.topic.send([*numbered(world, 0, 100), *broken])
    with world.driver(batch=50) as driver:
        driver.wait_for("waiting")
        assert "records are dead letters" in driver.text
        everything |= world.topic.send(numbered(world, 100, 50))
        reason = world.value("SELECT reason FROM tallyweir.pause")
        assert "dead_letter_limit allows 20.0%" in str(reason)
        driver.mark()
        _resume(world)
        driver.wait_for("driver started")
        world.await_read(250)
        driver.send(signal.SIGTERM)
        assert driver.wait() == 0, driver.text
    world.assert_fates(everything)


def test_a_driver_that_runs_once_ends_where_its_pipeline_is_paused(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """Who waits for it to end must not wait for a person."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.write_pipeline(_LIMITED)
    world.topic.send(_BROKEN * 200)
    driver = world.run_to_the_end(batch=100, code=75)
    assert "PAUSED" in driver.text
    assert "records are dead letters" in driver.text
    assert "paused since" in world.run_to_the_end(code=75).text


def _pause(world: DriverWorld) -> None:
    with psycopg.connect(world.home_dsn) as home:
        steering.pause(home, "readings", reason="a test")


def _resume(world: DriverWorld) -> None:
    with psycopg.connect(world.home_dsn) as home:
        steering.resume(home, "readings")
