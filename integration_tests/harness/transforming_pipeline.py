"""A pipeline in Python that appends its events, after a transform of a test's own."""

from __future__ import annotations

import textwrap
from pathlib import Path

from integration_tests.harness.driver_world import DriverWorld

_PIPELINE = """
from datetime import timedelta
from pyspark.sql import functions as F
from tallyweir import Append, Pipeline, Reported, Source

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
    reported=Reported({reported}),
    outputs=(Append(table="readings"),),
)
"""


def write_transforming_pipeline(
    world: DriverWorld, file: Path, body: str, *, reported: str = ""
) -> None:
    """Write a pipeline in Python.

    Args:
        world: Whose topic it reads.
        file: Where to.
        body: Of a function that gets ``events`` and returns them with more columns.
        reported: Which of them are figures: arguments of ``Reported``.
    """
    body = textwrap.indent(textwrap.dedent(body).strip(), "    ")
    file.write_text(
        _PIPELINE.format(topic=world.topic.name, body=body, reported=reported)
    )
