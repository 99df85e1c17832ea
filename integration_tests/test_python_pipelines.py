"""Python pipelines through a real driver: columns come, events stay."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from integration_tests.harness.driver_world import DriverWorld, numbered
from integration_tests.harness.readings import sent

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_PIPELINE = """
from datetime import timedelta
from pyspark.sql import functions as F
from spark_jobs.pipeline import AppendOutput, Pipeline, Source

def transform(events):
{body}

pipeline = Pipeline(
    name="readings",
    source=Source(
        topic="{topic}",
        schema="reading.v1.avsc",
        event_id="event_id",
        event_time="at",
        watermark_delay=timedelta(hours=1),
    ),
    transform=transform,
    outputs=(AppendOutput(table="readings"),),
)
"""

#: The numbers that the conservation law compares agree.
_LOSES_ONE_AND_DOUBLES_ANOTHER = """
n = F.col("amount")
copies = F.when(n == 1, 2).when(n == 2, 0).otherwise(1)
return events.withColumn("copy", F.explode(F.array_repeat(F.lit(0), copies)))
"""


def _world(tmp_path: Path, kafka_bootstrap: str, dsn: str, body: str) -> DriverWorld:
    world = DriverWorld(tmp_path, kafka_bootstrap, dsn)
    world.pipeline_file = tmp_path / "readings.py"
    body = textwrap.indent(textwrap.dedent(body).strip(), "    ")
    world.pipeline_file.write_text(_PIPELINE.format(topic=world.topic.name, body=body))
    return world


def test_a_transform_adds_columns_and_changes_nothing_else(
    tmp_path: Path, kafka_bootstrap: str, empty_dsn: str
) -> None:
    """Spark's functions and the user's own; ID, time, position and fields stay."""
    world = _world(
        tmp_path,
        kafka_bootstrap,
        empty_dsn,
        """
        @F.udf("string")
        def shout(sensor):
            return sensor.upper() + "!"
        twice = F.expr("amount * 2")
        more = events.withColumns({"loud": shout("sensor"), "twice": twice})
        return more.withColumn("amount", F.lit(77)).withColumn("sensor", F.lit(""))
        """,
    )
    everything = world.topic.send(numbered(world, 0, 50))
    world.run_to_the_end()
    world.assert_fates(everything)
    rows = world.fetch(
        "SELECT event_id, sensor, amount, loud, twice FROM readings ORDER BY amount"
    )
    assert rows == [(f"n{n}", "s1", n, "S1!", 2 * n) for n in range(50)]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ('return events.where("amount <> 7")', "CONSERVATION_BROKEN"),
        (
            _LOSES_ONE_AND_DOUBLES_ANOTHER,
            "EVENT_DOUBLED",
        ),
        ('return events.drop("sensor")', "TRANSFORM_COLUMNS"),
        ('return events.withColumn("amount", F.lit("x"))', "TRANSFORM_COLUMNS"),
        ('return events.withColumn("x", F.col("nowhere"))', "TRANSFORM_FAILED"),
        ("raise ValueError(3)", "TRANSFORM_FAILED"),
        ('return events.withColumn("pane", F.lit(1))', "PIPELINE_RESERVED_NAME"),
        ('return events.selectExpr("*", "interval 1 day AS d")', "TRANSFORM_TYPE"),
    ],
)
def test_a_transform_that_does_more_is_refused(
    body: str, code: str, tmp_path: Path, kafka_bootstrap: str, empty_dsn: str
) -> None:
    """Nothing is published, and the error says what the function did."""
    world = _world(tmp_path, kafka_bootstrap, empty_dsn, body)
    world.topic.send(
        [sent(world.contract, event_id=f"n{n}", amount=n) for n in range(20)]
    )
    with world.driver(once=True) as driver:
        assert driver.wait() in (70, 78), driver.text
    assert code in driver.text
    assert not world.value("SELECT count(*) FROM tallyweir.batch")
