"""A pipeline is scaled while it runs, and counts exactly all the time."""

from __future__ import annotations

import signal
from pathlib import Path

import psycopg
import pytest

from integration_tests.harness.driver_world import DriverWorld, numbered
from integration_tests.harness.standalone_cluster import standalone_cluster
from integration_tests.harness.transforming_pipeline import (
    write_transforming_pipeline,
)
from sinks.postgres import steering
from sinks.scaling.bounds import Bounds, Range

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

#: How long a transform takes for an event.
_SLOW = """
    import time

    def slowly(amount):
        time.sleep(0.002)
        return amount

    return events.withColumn("twice", F.udf(slowly, "bigint")("amount"))
"""

_ON_A_CLUSTER = {
    # Every batch is for the executors, and one of them does little at a time.
    "TALLYWEIR_SMALL_BATCH_OFFSETS_MAX": "0",
    "SPARK_SUBMIT_OPTS": "-Dspark.executor.cores=1 -Dspark.executor.memory=512m "
    "-Dspark.driver.host=127.0.0.1",
}


def _set(world: DriverWorld, bounds: Bounds) -> None:
    with psycopg.connect(world.home_dsn) as home:
        steering.set_bounds(home, "readings", bounds)


def test_a_batch_size_out_of_its_new_bounds_gives_way_to_a_new_query(
    tmp_path: Path, kafka_bootstrap: str, empty_dsn: str
) -> None:
    """The batch at hand is published; the next claim reads on behind it."""
    world = DriverWorld(tmp_path, kafka_bootstrap, empty_dsn)
    everything = world.topic.send(numbered(world, 0, 200))
    with world.driver(batch=100) as driver:
        world.await_read(200)
        _set(world, Bounds(batch_offsets=Range(least=10, most=40)))
        driver.wait_for("scaled")
        driver.wait_for("driver started")
        everything |= world.topic.send(numbered(world, 200, 300))
        world.await_read(500)
        driver.send(signal.SIGTERM)
        assert driver.wait() == 0, driver.text
        assert "starting over" not in driver.text
    assert world.value("SELECT max(epoch) FROM tallyweir.epoch_claim") == 2
    largest = world.value(
        "SELECT max(read) FROM ("
        "SELECT sum(read) AS read FROM tallyweir.batch_partition "
        "JOIN tallyweir.batch USING (pipeline, sequence) WHERE epoch = 2 "
        "GROUP BY sequence) AS batches"
    )
    # Spark rounds the share of each partition.
    assert largest <= 40 + 1
    world.assert_fates(everything)
    with world.driver(batch=100) as driver:
        driver.wait_for("driver started")
        world.topic.send(numbered(world, 500, 100))
        world.await_read(600)
    sizes = "SELECT count(*) FROM tallyweir.batch WHERE epoch = 3"
    assert world.value(sizes) >= 2, "the next driver has forgotten the size"


def test_executors_of_a_cluster_follow_new_bounds_while_batches_pass(
    tmp_path: Path, kafka_bootstrap: str, empty_dsn: str
) -> None:
    """Up and down again, with each decision written down and every event counted."""
    world = DriverWorld(tmp_path, kafka_bootstrap, empty_dsn)
    # The first start registers the pipeline, for there to be something to bound.
    everything = world.topic.send(numbered(world, 0, 100))
    world.run_to_the_end()
    _set(world, Bounds(executors=Range(least=1, most=1)))
    with standalone_cluster(
        tmp_path / "cluster", home_dsn=empty_dsn, workers=2
    ) as cluster:
        environment = {**_ON_A_CLUSTER, "TALLYWEIR_SPARK_MASTER": cluster.address}
        with world.driver(environment=environment) as driver:
            everything |= world.topic.send(numbered(world, 100, 100))
            world.await_read(200)
            cluster.await_executors(1)
            _set(world, Bounds(executors=Range(least=2, most=2)))
            everything |= world.topic.send(numbered(world, 200, 200))
            cluster.await_executors(2)
            _set(world, Bounds(executors=Range(least=1, most=1)))
            everything |= world.topic.send(numbered(world, 400, 200))
            cluster.await_executors(1)
            world.await_read(600)
            driver.send(signal.SIGTERM)
            assert driver.wait() == 0, driver.text
    changes = world.fetch(
        "SELECT executors_before, executors FROM tallyweir.scaling_decision "
        "WHERE executors <> executors_before ORDER BY decision"
    )
    assert changes == [(1, 2), (2, 1)]
    world.assert_fates(everything)


@pytest.mark.long
def test_a_backlog_raises_executors_and_quiet_lets_them_go(
    tmp_path: Path, kafka_bootstrap: str, empty_dsn: str
) -> None:
    """Nobody does anything but send: up while it lasts, down after the pause."""
    world = DriverWorld(tmp_path, kafka_bootstrap, empty_dsn)
    world.pipeline_file = tmp_path / "readings.py"
    write_transforming_pipeline(world, world.pipeline_file, _SLOW)
    everything = world.topic.send(numbered(world, 0, 10))
    world.run_to_the_end()
    _set(world, Bounds(executors=Range(least=1, most=2)))
    with standalone_cluster(
        tmp_path / "cluster", home_dsn=empty_dsn, workers=2
    ) as cluster:
        environment = {**_ON_A_CLUSTER, "TALLYWEIR_SPARK_MASTER": cluster.address}
        everything |= world.topic.send(numbered(world, 10, 60_000))
        with world.driver(environment=environment, batch=2_000) as driver:
            cluster.await_executors(2)
            world.await_value(
                "SELECT sum(read) FROM tallyweir.batch_partition",
                lambda read: read == 60_010,
                timeout_s=400,
            )
            cluster.await_executors(1, timeout_s=400)
            driver.send(signal.SIGTERM)
            assert driver.wait() == 0, driver.text
    changes = world.fetch(
        "SELECT executors_before, executors, because FROM tallyweir.scaling_decision "
        "WHERE executors <> executors_before ORDER BY decision"
    )
    assert changes == [(1, 2, "backlog"), (2, 1, "idle")]
    world.assert_fates(everything)
