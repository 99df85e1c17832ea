"""Python pipelines through a real driver: columns come, events stay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from integration_tests.harness.driver_world import DriverWorld, numbered
from integration_tests.harness.fresh_databases import fresh_database
from integration_tests.harness.kept_spark import EndedDriver
from integration_tests.harness.readings import sent
from integration_tests.harness.transforming_pipeline import (
    write_transforming_pipeline,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

#: The numbers that the conservation law compares agree.
_LOSES_ONE_AND_DOUBLES_ANOTHER = """
n = F.col("amount")
copies = F.when(n == 1, 2).when(n == 2, 0).otherwise(1)
return events.withColumn("copy", F.explode(F.array_repeat(F.lit(0), copies)))
"""


def _world(tmp_path: Path, kafka_bootstrap: str, dsn: str, body: str) -> DriverWorld:
    world = DriverWorld(tmp_path, kafka_bootstrap, dsn)
    world.pipeline_file = tmp_path / "readings.py"
    write_transforming_pipeline(world, world.pipeline_file, body)
    return world


def test_a_transform_adds_columns_and_changes_nothing_else(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """Spark's functions and the user's own; ID, time, position and fields stay."""
    world = _world(
        tmp_path,
        kafka_bootstrap,
        home_dsn,
        """
        @F.udf("string")
        def shout(sensor):
            return sensor.upper() + "!"
        twice = F.expr("amount * 2")
        more = events.withColumns({"loud": shout("sensor"), "twice": twice})
        more = more.withColumn("came_by", F.upper("kafka_topic"))
        more = more.withColumn("kafka_topic", F.lit("elsewhere"))
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
    topic = world.topic.name
    assert [(topic, topic.upper())] == world.fetch(
        "SELECT DISTINCT kafka_topic, came_by FROM readings"
    )


#: Transforms that do more than they may, by the code of the error that tells it.
_REFUSED = {
    "loses": ("CONSERVATION_BROKEN", 'return events.where("amount <> 7")'),
    "doubles": ("EVENT_DOUBLED", _LOSES_ONE_AND_DOUBLES_ANOTHER),
    "drops": ("TRANSFORM_COLUMNS", 'return events.drop("sensor")'),
    "retypes": ("TRANSFORM_COLUMNS", 'return events.withColumn("amount", F.lit("x"))'),
    "misnames": ("TRANSFORM_FAILED", 'return events.withColumn("x", F.col("nowhere"))'),
    "raises": ("TRANSFORM_FAILED", "raise ValueError(3)"),
    "reserved": (
        "PIPELINE_RESERVED_NAME",
        'return events.withColumn("pane", F.lit(1))',
    ),
    "untypable": (
        "TRANSFORM_TYPE",
        'return events.selectExpr("*", "interval 1 day AS d")',
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refusals:
    """The drivers, and how many batches they published."""

    drivers: Mapping[str, EndedDriver]
    batches: int


@pytest.fixture(scope="module")
def refusals(
    tmp_path_factory: pytest.TempPathFactory, kafka_bootstrap: str, server_dsn: str
) -> _Refusals:
    """One driver after the other over the same topic, of which none reads anything."""
    directory = tmp_path_factory.mktemp("refused")
    with fresh_database(server_dsn, "refused") as dsn:
        world = DriverWorld(directory, kafka_bootstrap, dsn)
        world.topic.send(
            [sent(world.contract, event_id=f"n{n}", amount=n) for n in range(20)]
        )
        ended: dict[str, EndedDriver] = {}
        for name, (_, body) in sorted(_REFUSED.items()):
            world.pipeline_file = directory / f"{name}.py"
            write_transforming_pipeline(world, world.pipeline_file, body)
            ended[name] = world.try_to_the_end()
        batches = world.value("SELECT count(*) FROM tallyweir.batch")
    return _Refusals(drivers=ended, batches=batches)


@pytest.mark.parametrize("name", _REFUSED)
def test_a_transform_that_does_more_is_refused(name: str, refusals: _Refusals) -> None:
    """Nothing is published, and the error says what the function did."""
    code, _ = _REFUSED[name]
    driver = refusals.drivers[name]
    assert driver.code in (70, 78), driver.text
    assert code in driver.lines, driver.text
    assert refusals.batches == 0
