"""A pipeline with keyed state and timers, for tests that break its driver."""

from __future__ import annotations

from integration_tests.harness.driver_world import DriverWorld

#: Running totals per sensor, a map and a list beside them; an alarm in event time ten
#: minutes after the last event of each hundred, and a processing timer that is due at
#: once. What it returns does not depend on how events are split over batches.
KEYED_PIPELINE = """
from datetime import timedelta
from tallyweir import (
    Append, ListState, MapState, Pipeline, Source, ValueState, stateful,
)


@stateful(
    table="totals",
    key=["sensor"],
    columns={{"what": "text", "number": "bigint", "total": "bigint"}},
    state={{"total": ValueState(0), "seen": MapState(), "last": ListState()}},
)
def totals(key, events, state, timers, watermark):
    for number, at in zip(events["amount"].to_pylist(), events["at"].to_pylist()):
        state["total"].value += number
        seen = str(number % 5)
        state["seen"][seen] = state["seen"].get(seen, 0) + 1
        state["last"].append(number)
        timers.set_event_time(f"silent {{number // 100}}", at + timedelta(minutes=10))
        yield {{"what": "event", "number": number, "total": state["total"].value}}
    if events.num_rows:
        timers.set_processing_time("soon", timers.now)
    for timer in timers.fired:
        if timer.name.startswith("silent"):
            yield {{"what": "silent", "number": int(timer.name.split()[1])}}
            state["last"].clear()


pipeline = Pipeline(
    name="readings",
    source=Source(
        topic="{topic}",
        schema="reading.v1.avsc",
        event_id="event_id",
        event_time="at",
        watermark_delay=timedelta(seconds=5),
    ),
    outputs=(Append(table="readings"), totals),
)
"""


def write_python_pipeline(world: DriverWorld, text: str) -> None:
    """Give a world a Python pipeline file; ``{topic}`` stands for the topic's name."""
    world.pipeline_file = world.directory / "readings.py"
    world.pipeline_file.write_text(text.format(topic=world.topic.name))
