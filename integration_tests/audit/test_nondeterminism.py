"""A transform that answers differently at each attempt, under a driver that is killed.

What is committed comes from one attempt: result rows, the messages of the outbox and
the state of keys that the transform itself has chosen agree with each other.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from integration_tests.crashes.test_keyed_crashes import POINTS
from integration_tests.harness.driver_world import DriverWorld, numbered
from integration_tests.harness.keyed_pipeline import write_python_pipeline

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

_EVENTS = 400
_PIPELINE = """
from datetime import timedelta
from pyspark.sql import functions as F
from tallyweir import (
    Append, Outbox, Pipeline, Source, ValueState, stateful,
)


def transform(events):
    return events.withColumn("dice", F.rand()).withColumn(
        "lot", F.expr("cast(rand() * 5 as int)")
    )


@stateful(
    table="lots",
    key=["lot"],
    columns={{"event_id": "text", "dice": "double precision"}},
    state={{"events": ValueState(0)}},
)
def lots(key, events, state, timers, watermark):
    state["events"].value += events.num_rows
    return events.select(["event_id", "dice"]).to_pylist()


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
    outputs=(
        Append(table="readings"),
        Outbox(topic="dice", key="event_id", select=("event_id", "dice", "lot")),
        lots,
    ),
)
"""


@pytest.mark.long
def test_tables_outbox_and_state_come_from_one_attempt(
    tmp_path: Path, kafka_bootstrap: str, empty_dsn: str
) -> None:
    """Killed after each point, the next driver's transform gives other answers."""
    world = DriverWorld(tmp_path, kafka_bootstrap, empty_dsn)
    write_python_pipeline(world, _PIPELINE)
    everything = world.topic.send(numbered(world, 0, _EVENTS))
    for point in POINTS:
        with world.driver(batch=30, fault=f"after:{point.value}:2:SIGKILL") as driver:
            assert driver.wait() == -signal.SIGKILL, driver.text
    world.run_to_the_end(batch=60)
    world.assert_fates(everything)

    rows = {
        event_id: (dice, lot)
        for event_id, dice, lot in world.fetch(
            "SELECT event_id, dice, lot FROM readings"
        )
    }
    assert _EVENTS == len(rows)
    sent = [
        json.loads(bytes(value))
        for (value,) in world.fetch("SELECT value FROM tallyweir.outbox")
    ]
    assert rows == {one["event_id"]: (one["dice"], one["lot"]) for one in sent}
    given = world.fetch("SELECT event_id, dice, lot FROM lots")
    assert _EVENTS == len(given)
    assert rows == {event_id: (dice, lot) for event_id, dice, lot in given}
    counts = world.fetch("SELECT lot, count(*) FROM readings GROUP BY lot ORDER BY lot")
    assert counts == world.fetch(
        "SELECT (key::json ->> 0)::integer AS lot, (value #>> '{}')::bigint "
        "FROM tallyweir.keyed_state ORDER BY lot"
    )
