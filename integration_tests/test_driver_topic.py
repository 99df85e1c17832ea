"""A topic that is damaged or grows: the driver stops where events could be lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from integration_tests.harness.driver_process import DriverProcess
from integration_tests.harness.driver_world import DriverWorld, numbered
from integration_tests.harness.readings import sent

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_CONFIGURATION = 78


def _assert_stopped(driver: DriverProcess, code: str) -> None:
    assert driver.wait() == _CONFIGURATION, driver.text
    assert code in driver.lines, driver.text
    assert "Traceback" not in driver.text


def test_a_topic_made_anew_under_its_old_name_stops_the_pipeline(
    tmp_path: Path, kafka_bootstrap: str, empty_dsn: str
) -> None:
    """The new topic's first events are not skipped silently, running or restarted."""
    world = DriverWorld(tmp_path, kafka_bootstrap, empty_dsn)
    everything = world.topic.send(numbered(world, 0, 100))
    with world.driver() as driver:
        world.await_value(
            "SELECT sum(read) FROM tallyweir.batch_partition", lambda n: n == 100
        )
        world.topic.delete()
        world.topic.create(2)
        # As many as before, and then some: Spark sees nothing but a few new offsets.
        world.topic.send(numbered(world, 1_000, 120))
        _assert_stopped(driver, "TOPIC_RECREATED")
    world.assert_fates(everything)
    with world.driver() as driver:
        _assert_stopped(driver, "TOPIC_RECREATED")
    world.assert_fates(everything)


def test_a_retention_gap_stops_the_pipeline_until_it_is_accepted(
    tmp_path: Path, kafka_bootstrap: str, empty_dsn: str
) -> None:
    """What Kafka deleted unread is told by number, and is in the ledger once accepted.

    A partition that was added meanwhile is read from its first offset.
    """
    world = DriverWorld(tmp_path, kafka_bootstrap, empty_dsn, partitions=1)
    kept = world.topic.send(numbered(world, 0, 100, partitions=[0]))
    world.run_to_the_end()
    world.topic.grow_to(2)
    unread = world.topic.send(numbered(world, 100, 100, partitions=[0]))
    kept |= world.topic.send(numbered(world, 300, 10, partitions=[1]))
    world.topic.delete_before(150)
    with world.driver(once=True) as driver:
        _assert_stopped(driver, "RETENTION_GAP")
    assert "deleted 50 offsets" in driver.text
    assert "tallyweir accept-gap" in driver.text
    world.assert_fates({p: r for p, r in kept.items() if p[0] == 0})

    accepted = subprocess.run(
        [
            *(sys.executable, "-m", "services.cli"),
            *("accept-gap", "readings", "--reason", "a test's retention"),
        ],
        env={
            **os.environ,
            "TALLYWEIR_KAFKA_BOOTSTRAP": kafka_bootstrap,
            "TALLYWEIR_HOME_DSN": empty_dsn,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == accepted.returncode, accepted.stderr
    world.run_to_the_end()
    kept |= {place: record for place, record in unread.items() if place[1] >= 150}
    world.assert_fates(kept)
    assert [(100, 150)] == world.fetch(
        "SELECT from_offset, until_offset FROM tallyweir.accepted_gap"
    )


def test_a_partition_added_under_a_running_driver_counts_from_its_first_event(
    tmp_path: Path, kafka_bootstrap: str, empty_dsn: str
) -> None:
    """Keys move to other partitions, so repeats are found over all of them."""
    world = DriverWorld(tmp_path, kafka_bootstrap, empty_dsn, partitions=1)
    everything = world.topic.send(numbered(world, 0, 100, partitions=[0]))
    with world.driver() as driver:
        driver.wait_for("batch published")
        world.topic.grow_to(4)
        added = numbered(world, 200, 90, partitions=[1, 2, 3])
        repeats = [
            sent(
                world.contract,
                event_id=f"n{number}",
                amount=number,
                partition=number % 4,
                fate="duplicate",
            )
            for number in range(40)
        ]
        everything |= world.topic.send([*added, *repeats])
        world.await_value(
            "SELECT sum(read) FROM tallyweir.batch_partition",
            lambda n: n == len(everything),
        )
        driver.send(signal.SIGTERM)
        assert driver.wait() == 0, driver.text
    world.assert_fates(everything)
