"""The example of docs/keyed-state.md, through a real driver."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import psycopg
import pytest

from integration_tests.harness.driver_world import DriverWorld
from integration_tests.harness.keyed_pipeline import write_python_pipeline
from integration_tests.harness.readings import NOON, sent
from tallyweir.sinks.postgres.audit import read_key

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_PIPELINE = """
from datetime import timedelta
from tallyweir import Append, Pipeline, Source, ValueState, stateful


@stateful(
    table="machine_totals",
    key=["sensor"],
    columns={{"what": "text", "total": "bigint"}},
    state={{"total": ValueState(0)}},
)
def totals(key, events, state, timers, watermark):
    for at, amount in zip(events["at"].to_pylist(), events["amount"].to_pylist()):
        state["total"].value += amount
        timers.set_event_time(f"silent since {{at:%H:%M}}", at + timedelta(minutes=10))
        yield {{"what": "reading", "total": state["total"].value}}
    for timer in timers.fired:
        yield {{"what": timer.name, "total": state["total"].value}}


pipeline = Pipeline(
    name="readings",
    source=Source(
        topic="{topic}",
        schema="reading.v1.avsc",
        event_id="event_id",
        event_time="at",
        watermark_delay=timedelta(),
    ),
    outputs=(Append(table="readings"), totals),
)
"""

_SILENCES = "SELECT sensor, total FROM machine_totals WHERE what"


@pytest.mark.long
def test_the_page_of_keyed_state_shows_what_happens(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """Rows, state and the timer that is left are those of the page; it can be moved."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn, partitions=1)
    write_python_pipeline(world, _PIPELINE)
    _send(world, ("press-7", 0, 5), ("press-7", 30, 7), ("press-7", 1200, 1))
    world.run_to_the_end()
    assert [
        ("press-7", "reading", 5),
        ("press-7", "reading", 12),
        ("press-7", "reading", 13),
        ("press-7", "silent since 12:00", 13),
    ] == world.fetch(
        "SELECT sensor, what, total FROM machine_totals "
        "ORDER BY tallyweir_sequence, tallyweir_ordinal"
    )
    with psycopg.connect(world.home_dsn) as connection:
        report = read_key(connection, "readings", "press-7")
    assert [("total", "13")] == [(row["name"], row["value"]) for row in report.state]
    assert [("silent since 12:20", "event")] == [
        (row["name"], row["clock"]) for row in report.timers
    ]
    world.assert_verified()
    # The timer of 12:20 is due by the watermark of 12:30:30, and was moved by then.
    _send(world, ("press-7", 1259, 2), ("press-8", 1830, 3))
    world.run_to_the_end()
    assert [] == world.fetch(f"{_SILENCES} = 'silent since 12:20'")
    _send(world, ("press-8", 2400, 1))
    world.run_to_the_end()
    assert [("press-7", 15)] == world.fetch(f"{_SILENCES} = 'silent since 12:20'")
    world.assert_verified()


def _send(world: DriverWorld, *readings: tuple[str, int, int]) -> None:
    world.topic.send(
        [
            sent(
                world.contract,
                event_id=f"{sensor}.{second}",
                sensor=sensor,
                amount=amount,
                at=NOON + dt.timedelta(seconds=second),
            )
            for sensor, second, amount in readings
        ]
    )
