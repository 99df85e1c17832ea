"""Batches that the driver plans itself, between those of Spark: all is the same."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from integration_tests.harness.driver_world import SOURCE, DriverWorld, numbered
from integration_tests.harness.readings import Sent, sent
from tallyweir.spark_jobs.batches.bridge import OWN_BATCHES_S

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_FEW = {"TALLYWEIR_SMALL_BATCH_OFFSETS_MAX": "60"}
_TURNS = 30
#: Offsets that Spark plans at a time.
_PLANNED = 100
#: Nothing of it is computed by Spark: only then does the driver read and plan itself.
_PIPELINE = (
    SOURCE
    + """
    deduplicate: {{horizon: 7 days}}
    outputs:
      - append: {{table: readings}}
"""
)


def test_the_driver_and_spark_plan_batches_in_turn(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """Each goes on where the other has stopped, by whole offsets.

    Spark's ranges overlap with what the driver has staged meanwhile, and a batch that
    is too large for the driver is read by tasks, from the middle of such a range.
    """
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.write_pipeline(_PIPELINE)
    everything: dict[tuple[int, int], Sent] = {}
    with world.driver(environment=_FEW) as driver:
        driver.wait_for("driver started")
        for turn in range(_TURNS):
            everything |= world.topic.send(numbered(world, 4 * turn, 4))
            world.await_read(len(everything))
            if turn % 10 == 9:
                everything |= world.topic.send(numbered(world, 1_000 * turn, 500))
                world.await_read(len(everything))
        planned_by_spark = len(list(world.state.glob("checkpoints/*/*/offsets/[0-9]*")))
        assert planned_by_spark < len(world.ledger())
    world.assert_fates(everything)


@pytest.mark.long
def test_spark_does_not_fall_behind_the_drivers_own_batches(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """It plans so many offsets at a time, and has to plan all that was staged.

    Fallen behind, it would plan one range after the other in which nothing is left,
    once there is more to read than the driver reads by itself.
    """
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.write_pipeline(_PIPELINE)
    everything: dict[tuple[int, int], Sent] = {}
    with world.driver(environment=_FEW, batch=_PLANNED) as driver:
        driver.wait_for("driver started")
        for turn in range(_TURNS):
            everything |= world.topic.send(numbered(world, 20 * turn, 20))
            world.await_read(len(everything))
        planned_by_spark = len(list(world.state.glob("checkpoints/*/*/offsets/[0-9]*")))
        assert planned_by_spark >= len(everything) // _PLANNED
        assert planned_by_spark < len(world.ledger())
    world.assert_fates(everything)


@pytest.mark.long
def test_a_partition_that_is_added_does_not_wait_for_the_drivers_own_batches_to_end(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """Only Spark looks for partitions, and the driver knows when to ask it."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn, partitions=1)
    world.write_pipeline(_PIPELINE)
    everything = world.topic.send(numbered(world, 0, 4, partitions=[0]))
    with world.driver(environment=_FEW) as driver:
        driver.wait_for("driver started")
        world.await_read(len(everything))
        everything |= world.topic.send(numbered(world, 100, 4, partitions=[0]))
        world.await_read(len(everything))
        world.topic.grow_to(2)
        added_at = time.monotonic()
        everything |= world.topic.send(numbered(world, 200, 4, partitions=[1]))
        world.await_read(len(everything))
        assert time.monotonic() - added_at < OWN_BATCHES_S / 2
    world.assert_fates(everything)


@pytest.mark.long
def test_aborted_transactions_are_in_no_batch_of_the_drivers_own(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """Their offsets and markers are read over."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.write_pipeline(_PIPELINE)
    everything = world.topic.send(numbered(world, 0, 4))
    with world.driver(environment=_FEW) as driver:
        driver.wait_for("driver started")
        world.await_read(len(everything))
        for turn in range(1, _TURNS):
            first = 100 * turn
            everything |= world.topic.send_in_transactions(
                [
                    (numbered(world, first, 3), True),
                    (numbered(world, first + 50, 3), False),
                ]
            )
            world.await_read(len(everything))
    world.assert_fates(everything)


def test_a_row_that_is_refused_in_a_batch_of_the_drivers_own_is_dead(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """The batch is read again, and so is the one that was staged behind it."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.write_pipeline(_PIPELINE)
    everything = world.topic.send(numbered(world, 0, 4))
    with world.driver(environment=_FEW) as driver:
        driver.wait_for("driver started")
        world.await_read(len(everything))
        world.execute("ALTER TABLE readings ADD CHECK (amount <> 1000)")
        for turn in range(1, _TURNS):
            refused = sent(
                world.contract,
                event_id=f"refused{turn}",
                amount=1000,
                partition=turn % 2,
                fate="REJECTED_BY_POSTGRES",
            )
            everything |= world.topic.send([*numbered(world, 10 * turn, 4), refused])
        world.await_read(len(everything))
    world.assert_fates(everything)
