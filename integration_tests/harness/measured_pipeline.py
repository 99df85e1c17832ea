"""Pipelines of readings whose own Python takes as long as a test says, or reports."""

from __future__ import annotations

import textwrap

from integration_tests.harness.driver_world import DriverWorld
from integration_tests.harness.keyed_pipeline import write_python_pipeline
from integration_tests.harness.transforming_pipeline import write_transforming_pipeline

#: Has Spark's tasks stage every batch, however small it is.
BY_SPARK = {"TALLYWEIR_SMALL_BATCH_OFFSETS_MAX": "0"}
#: Has the driver stage every batch of a test by itself.
BY_DRIVER = {"TALLYWEIR_SMALL_BATCH_OFFSETS_MAX": "20000"}

_TOTALS = """
import time
from datetime import timedelta
from tallyweir import Pipeline, Source, ValueState, count, observe, stateful


@stateful(
    table="totals",
    key=["sensor"],
    columns={{{{"total": "bigint"}}}},
    state={{{{"total": ValueState(0)}}}},
)
def totals(key, events, state, timers, watermark):
{body}
    state["total"].value += events.num_rows
    yield {{{{"total": state["total"].value}}}}


pipeline = Pipeline(
    name="readings",
    source=Source(
        topic="{{topic}}",
        schema="reading.v1.avsc",
        event_id="event_id",
        event_time="at",
        watermark_delay=timedelta(hours=1),
    ),
    outputs=(totals,),
)
"""
_SLEEPING = """
import time

@F.udf("int")
def slow(number):
    time.sleep({seconds})
    return 1

return events.withColumn("slept", slow("amount"))
"""


def write_totals(world: DriverWorld, body: str) -> None:
    """Have a world's pipeline count the events of each sensor, in keyed state.

    Args:
        world: Whose topic it reads.
        body: What its function does besides with each key and its ``events``.
    """
    body = textwrap.indent(textwrap.dedent(body).strip(), "    ")
    write_python_pipeline(world, _TOTALS.format(body=body))


def write_sleeping_transform(world: DriverWorld, seconds: float) -> None:
    """Have a world's pipeline sleep for each event, in a function of its transform."""
    world.pipeline_file = world.directory / "readings.py"
    body = _SLEEPING.format(seconds=seconds)
    write_transforming_pipeline(world, world.pipeline_file, body)
