"""A topic that is damaged, held or grown: the driver never goes past unread events."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from integration_tests.harness.driver_world import DriverWorld, numbered
from integration_tests.harness.readings import Sent
from integration_tests.harness.watched_driver import WatchedDriver

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_CONFIGURATION = 78


def _assert_stopped(driver: WatchedDriver, code: str) -> None:
    assert driver.wait() == _CONFIGURATION, driver.text
    assert code in driver.lines, driver.text
    assert "Traceback" not in driver.text


@pytest.mark.parametrize(
    ("events", "partitions"),
    [
        pytest.param(20, 2, id="shorter", marks=pytest.mark.long),
        pytest.param(100, 2, id="equal", marks=pytest.mark.long),
        pytest.param(120, 2, id="longer"),
        pytest.param(150, 3, id="equal-and-one-partition-more", marks=pytest.mark.long),
        pytest.param(50, 1, id="equal-and-one-partition-less", marks=pytest.mark.long),
    ],
)
def test_a_topic_made_anew_under_its_old_name_stops_the_pipeline(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str, events: int, partitions: int
) -> None:
    """The new topic's first events are not skipped silently, running or restarted.

    Offsets tell only the shorter one; one that is as long as the old never gives a
    running query anything to read.
    """
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    everything = world.topic.send(numbered(world, 0, 100))
    with world.driver() as driver:
        world.await_read(100)
        world.topic.delete()
        world.topic.create(partitions)
        world.topic.send(numbered(world, 1_000, events, partitions=range(partitions)))
        _assert_stopped(driver, "TOPIC_RECREATED")
    world.assert_fates(everything)
    with world.driver() as driver:
        _assert_stopped(driver, "TOPIC_RECREATED")
    world.assert_fates(everything)


@pytest.mark.long
def test_a_topic_that_is_gone_stops_the_pipeline(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """A running driver does not wait for a topic that somebody deleted."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    everything = world.topic.send(numbered(world, 0, 100))
    with world.driver() as driver:
        world.await_read(100)
        world.topic.delete()
        _assert_stopped(driver, "TOPIC_MISSING")
    world.assert_fates(everything)


@pytest.mark.long
def test_a_retention_gap_stops_the_pipeline_until_it_is_accepted(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """What Kafka deleted unread is told by number, and is in the ledger once accepted.

    It happens under a running driver first, and then goes on while none runs. A
    partition that was added meanwhile is read from its first offset.
    """
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn, partitions=1)
    kept = world.topic.send(numbered(world, 0, 100, partitions=[0]))
    with world.driver(fault="after:planned:2:SIGSTOP") as driver:
        world.await_read(100)
        unread = world.topic.send(numbered(world, 100, 100, partitions=[0]))
        driver.wait_until_stopped()
        world.topic.delete_before(150)
        driver.send(signal.SIGCONT)
        _assert_stopped(driver, "RETENTION_GAP")
    assert "deleted 50 offsets" in driver.text
    world.assert_fates(kept)

    world.topic.grow_to(2)
    kept |= world.topic.send(numbered(world, 300, 10, partitions=[1]))
    world.topic.delete_before(170)
    ended = world.run_to_the_end(code=_CONFIGURATION)
    assert "RETENTION_GAP" in ended.lines, ended.text
    assert "deleted 70 offsets" in ended.text
    assert "tallyweir accept-gap" in ended.text

    lost = f"lost: {world.topic.name}[0] 100..170, up to 70 records"
    assert lost in _accept_gap(world, "--dry-run").stdout
    assert [] == world.fetch("SELECT FROM tallyweir.accepted_gap")
    accepted = _accept_gap(world)
    assert 0 == accepted.returncode, accepted.stderr
    assert lost in accepted.stdout
    assert "NO_GAP" in _accept_gap(world).stderr
    world.run_to_the_end()
    kept |= {place: record for place, record in unread.items() if place[1] >= 170}
    world.assert_fates(kept)
    assert [(100, 170, "a test's retention")] == world.fetch(
        "SELECT from_offset, until_offset, reason FROM tallyweir.accepted_gap"
    )


def _accept_gap(world: DriverWorld, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(sys.executable, "-m", "tallyweir.services.cli", "accept-gap", "readings"),
            *("--reason", "a test's retention", *options),
        ],
        env={
            **os.environ,
            "TALLYWEIR_KAFKA_BOOTSTRAP": world.topic.bootstrap,
            "TALLYWEIR_HOME_DSN": world.home_dsn,
        },
        capture_output=True,
        text=True,
        check=False,
    )


def test_partitions_added_under_load_count_from_their_first_event(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """Keys move to other partitions, so repeats are found over all of them.

    Which copy of an ID counts depends on how Spark cuts its batches; that one does, and
    only one, does not.
    """
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn, partitions=1)
    everything = world.topic.send(_repeating(world, 0, range(1)))
    with world.driver(batch=60) as driver:
        driver.wait_for("batch published")
        world.topic.grow_to(2)
        everything |= world.topic.send(_repeating(world, 150, range(2)))
        driver.wait_for("batch published")
        world.topic.grow_to(7)
        everything |= world.topic.send(_repeating(world, 300, range(7)))
        world.await_read(len(everything))
        driver.send(signal.SIGTERM)
        assert driver.wait() == 0, driver.text
    fates = world.fates()
    assert everything.keys() == fates.keys()
    assert {0, 1, 2, 3, 4, 5, 6} == {partition for partition, _ in fates}
    assert {"committed", "duplicate"} == set(fates.values())
    ids = [f"n{number}" for number in range(450)]
    assert [(event_id,) for event_id in sorted(ids)] == sorted(
        world.fetch("SELECT event_id FROM public.readings")
    )
    world.assert_verified()


def _repeating(world: DriverWorld, first: int, partitions: Sequence[int]) -> list[Sent]:
    """Make 150 new readings, and 50 that repeat every third ID of them and before."""
    made = numbered(world, first, 150, partitions=partitions)
    repeats = numbered(world, 0, first + 150, partitions=partitions[::-1])
    return [*made, *repeats[:: 3 * (first // 150 + 1)]]


def test_an_open_transaction_holds_its_partition_and_is_told(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """The log shows why nothing comes; after the abort all that waited is read."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    everything = world.topic.send(numbered(world, 0, 100))
    with world.driver() as driver:
        world.await_read(100)
        with world.topic.open_transaction(numbered(world, 900, 30, partitions=[0])):
            everything |= world.topic.send(numbered(world, 100, 70))
            told = driver.wait_for("transaction holds the log")
            world.await_read(135)
        assert (f"{world.topic.name}[0]", 50) == (
            told["partition"],
            told["stable_offset"],
        )
        assert told["end_offset"] > 50
        world.await_read(170)
        driver.send(signal.SIGTERM)
        assert driver.wait() == 0, driver.text
    world.assert_fates(everything)
