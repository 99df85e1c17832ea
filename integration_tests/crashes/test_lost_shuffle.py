"""Shuffled rows that are lost in mid-batch are made again, and counted once."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from integration_tests.harness.driver_world import DriverWorld, numbered
from integration_tests.harness.transforming_pipeline import (
    write_transforming_pipeline,
)
from tallyweir.sinks.postgres.server.naming import staging_table
from tallyweir.sinks.protocol.identity import Epoch

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_RECORDS = 400
_TASKS = 2
_WAITING = (
    "SELECT count(*) FROM pg_stat_activity "
    "WHERE wait_event_type = 'Lock' AND datname = current_database()"
)


def test_a_batch_outlives_the_loss_of_its_shuffled_rows(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """As when a worker goes: Spark reads the source again, and counts it twice.

    Both tasks wait in mid-stage while the files go; one of them then runs again, and
    finds nothing to fetch.
    """
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.pipeline_file = tmp_path / "readings.py"
    # A transform may do anything with its rows, so they are shuffled after it.
    body = 'return events.withColumn("twice", F.col("amount") * 2)'
    write_transforming_pipeline(world, world.pipeline_file, body)
    spark_files = tmp_path / "spark"
    environment = {
        "TALLYWEIR_SPARK_MASTER": "local[2,4]",
        "SPARK_LOCAL_DIRS": str(spark_files),
    }
    with world.driver(environment=environment) as driver:
        driver.wait_for("driver started")
        with psycopg.connect(home_dsn) as connection:
            connection.execute(
                sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(
                    staging_table(1, Epoch(1), "output_0", sequence=1)
                )
            )
            everything = world.topic.send(numbered(world, 0, _RECORDS))
            world.await_value(_WAITING, lambda waiting: waiting == _TASKS)
            lost = list(spark_files.rglob("shuffle_*.*"))
            assert lost
            for file in lost:
                file.unlink()
            driver.kill_a_worker()
        world.await_read(_RECORDS)
        assert "starting over" not in driver.text
    log = (world.state / "logs" / "readings.spark.log").read_text()
    assert "FetchFailed" in log
    world.assert_fates(everything)
