"""Functions that set their timers again and again keep nobody from ending."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from integration_tests.harness.driver_world import DriverWorld
from integration_tests.harness.keyed_pipeline import write_python_pipeline
from integration_tests.harness.readings import sent
from tallyweir.sinks.postgres import audit, steering
from tallyweir.sinks.postgres.audit import PipelineState

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

#: A clock that ticks every few milliseconds for as long as the driver works, an alarm
#: in event time, and one that is due again at once while there is a file.
_PIPELINE = """
from datetime import timedelta
from pathlib import Path
from tallyweir import Append, Pipeline, Source, stateful


@stateful(
    table="fired", key=["sensor"], columns={{"what": "text"}}, state={{}}
)
def fired(key, events, state, timers, watermark):
    for at in events["at"].to_pylist():
        timers.set_event_time("alarm", at + timedelta(hours=2))
    names = [timer.name for timer in timers.fired]
    if events.num_rows or "clock" in names:
        timers.set_processing_time("clock", timers.now + timedelta(milliseconds=3))
    if "alarm" in names and Path("{endless}").exists():
        timers.set_event_time("alarm", watermark)
    for name in names:
        yield {{"what": name}}


pipeline = Pipeline(
    name="readings",
    source=Source(
        topic="{topic}",
        schema="reading.v1.avsc",
        event_id="event_id",
        event_time="at",
        watermark_delay=timedelta(),
    ),
    outputs=(Append(table="readings"), fired),
)
"""

_FIRED = "SELECT count(*) FROM fired WHERE what = '{}'"
_TIMERS = "SELECT name, clock FROM tallyweir.keyed_timer ORDER BY 1"


class _Clocks:
    """A pipeline of one key, whose timer of the clock is always about to be due."""

    def __init__(self, world: DriverWorld) -> None:
        self.world = world
        self.endless = world.directory / "endless"
        text = _PIPELINE.replace("{endless}", str(self.endless))
        write_python_pipeline(world, text)
        world.topic.send([sent(world.contract, event_id="a", partition=0)])

    def ask_to_drain(self) -> None:
        """Ask for a drain that closes what is open."""
        request = steering.ActRequest(
            pipeline="readings", kind="drain", reason="a test"
        )
        with psycopg.connect(self.world.home_dsn) as home:
            steering.drain(home, request, closes_windows=True)

    def state(self) -> PipelineState:
        with psycopg.connect(self.world.home_dsn) as home:
            return audit.read_status(home, "readings").state(0)

    def await_fired(self, name: str, is_reached: Callable[[int], bool]) -> None:
        self.world.await_value(_FIRED.format(name), is_reached)

    def count(self, name: str) -> int:
        found = self.world.value(_FIRED.format(name))
        assert isinstance(found, int)
        return found


@pytest.fixture
def clocks(tmp_path: Path, kafka_bootstrap: str, home_dsn: str) -> _Clocks:
    """One reading, and no driver yet."""
    return _Clocks(DriverWorld(tmp_path, kafka_bootstrap, home_dsn, partitions=1))


def test_a_driver_that_runs_once_ends_though_a_timer_is_always_due(
    clocks: _Clocks,
) -> None:
    """Each tick takes longer than the timer that its function sets again."""
    # How many ticks there are beside the query is up to the machine; after it, one.
    clocks.world.run_to_the_end()
    assert [("alarm", "event"), ("clock", "processing")] == clocks.world.fetch(_TIMERS)
    clocks.world.assert_verified()


def test_a_drain_leaves_timers_of_the_clock(clocks: _Clocks) -> None:
    """It fires those in event time, once each, and ends."""
    with clocks.world.driver() as driver:
        clocks.await_fired("clock", bool)
        driver.send(signal.SIGTERM)
        assert driver.wait() == 0, driver.text
    fired = clocks.count("clock")
    clocks.ask_to_drain()
    with clocks.world.driver() as driver:
        assert driver.wait() == 0, driver.text
    assert clocks.state() is PipelineState.DRAINED
    assert (fired, 1) == (clocks.count("clock"), clocks.count("alarm"))
    assert [("clock", "processing")] == clocks.world.fetch(_TIMERS)
    clocks.world.assert_verified()


@pytest.mark.long
def test_a_driver_that_is_told_to_stop_leaves_the_drain_to_the_next(
    clocks: _Clocks,
) -> None:
    """Also where a function sets what is due again, so that no tick is the last."""
    clocks.world.run_to_the_end()
    clocks.endless.touch()
    clocks.ask_to_drain()
    with clocks.world.driver() as driver:
        clocks.await_fired("alarm", lambda fired: fired > 1)
        driver.send(signal.SIGTERM)
        assert driver.wait() == 0, driver.text
    assert clocks.state() is PipelineState.DRAINING
    clocks.world.assert_verified()
    clocks.endless.unlink()
    with clocks.world.driver() as driver:
        assert driver.wait() == 0, driver.text
    assert clocks.state() is PipelineState.DRAINED
    assert [("clock", "processing")] == clocks.world.fetch(_TIMERS)
