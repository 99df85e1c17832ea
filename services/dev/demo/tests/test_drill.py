"""Only a driver that died before its batch was published counts as a kill."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from tallyweir.services.dev.demo.demo_world import Ledger
from tallyweir.services.dev.demo.drill import (
    DemoProgress,
    Drill,
    DrillParts,
    DrillReport,
)
from tallyweir.services.dev.demo.scenario import FlightStream, Kill, Scenario
from tallyweir.services.process.driver_process import DriverProcess
from tallyweir.sinks.kafka_admin import KafkaAdmin
from tallyweir.sinks.protocol.errors import FatalError
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.recovery import BrokerPosition

PLACE = TopicPartition("t", 0)
BATCH = 10


class World:
    """Topic, ledger and driver in one: a driver publishes ``BATCH`` records at a time.

    Args:
        at_kill: What the driver was doing when SIGKILL came.
        is_quick: Whether a driver publishes before anybody can kill it.
    """

    expectation = None
    expected = None

    def __init__(
        self, at_kill: Callable[[World], None], *, is_quick: bool = False
    ) -> None:
        self.sent = self.read = self.sequence = self.started = 0
        self.left = 100
        self.is_drained = False
        self._at_kill = at_kill
        self._is_quick = is_quick
        self._is_planned = self._is_started = False

    def publish(self) -> None:
        """Do what a driver's publish transaction does."""
        self.read = min(self.sent, self.read + BATCH)
        self.sequence += 1

    # The stream.
    def send(self, count: int | None, on_sent: Callable[[int], None]) -> int:
        sent = min(self.left, self.left if count is None else count)
        self.left -= sent
        self.sent += sent
        on_sent(self.sent)
        return sent

    # The ledger and the topic's log.
    def read_last_sequence(self) -> int:
        return self.sequence

    def read_positions(self) -> dict[TopicPartition, int]:
        return {PLACE: self.read}

    # The driver.
    @contextmanager
    def start_driver(self) -> Iterator[World]:
        self.started += 1
        self._is_planned = self._is_started = False
        yield self

    def next_event(self, timeout_s: float) -> dict[str, Any] | None:
        if not self._is_started:
            self._is_started = True
            return {"event": "driver started", "epoch": self.started}
        if self._is_planned and timeout_s < 10 and not self._is_quick:
            return None
        if self._is_planned:
            self._is_planned = False
            self.publish()
            counts = dict.fromkeys(("read", "committed", "duplicate", "dead"), 0)
            return {
                "event": "batch published",
                "sequence": self.sequence,
                "seconds": 1.0,
                **counts,
            }
        if self.read == self.sent:
            return None
        self._is_planned = True
        return {"event": "batch planned", "sequence": self.sequence + 1}

    def kill(self) -> None:
        self._at_kill(self)

    def drain(self) -> None:
        assert self._is_started, "SIGTERM before it is handled ends a process at once"
        self.is_drained = True

    def failure(self, what: str) -> FatalError:
        return FatalError("DRIVER_FAILED", saw=what, why="", fix="")


class WorldAhead(World):
    """A driver that plans a batch before the one ahead of it is published."""

    planned = 0

    def next_event(self, timeout_s: float) -> dict[str, Any] | None:
        is_next_known = self._is_started and self.planned * BATCH < self.sent
        if is_next_known and self.planned - self.sequence < 2:
            self.planned += 1
            return {"event": "batch planned", "sequence": self.planned}
        self._is_planned = self.sequence < self.planned
        return super().next_event(timeout_s)


class TopicEnds:
    """Where the topic of a world ends."""

    def __init__(self, world: World) -> None:
        self._world = world

    def read_positions(self) -> dict[TopicPartition, BrokerPosition]:
        return {
            PLACE: BrokerPosition(
                topic_id="id", log_start_offset=0, log_end_offset=self._world.sent
            )
        }


class Silence:
    """A watcher that does not look."""

    def tell(self, text: str) -> None:
        """Not listened to."""

    def show(self, progress: DemoProgress) -> None:
        """Not looked at."""


def run(world: World, folder: Path) -> DrillReport:
    """Run a scenario of two kills, each after one published batch."""
    checkpoints = folder / "checkpoints"
    checkpoints.mkdir()
    kills = tuple(
        Kill(batches_before=1, moment=0.5, loses_checkpoint=lost)
        for lost in (False, True)
    )
    scenario = Scenario(
        events=100,
        seed=7,
        messages=100,
        parts=(40, 30),
        batch_offsets_max=BATCH,
        kills=kills,
    )
    parts = DrillParts(
        stream=cast(FlightStream, world),
        ledger=cast(Ledger, world),
        topic=cast(KafkaAdmin, TopicEnds(world)),
        start_driver=cast(Callable[[], DriverProcess], world.start_driver),
        checkpoints=checkpoints,
    )
    return Drill(parts, scenario, Silence()).run()


def test_two_drivers_die_in_mid_batch_and_the_third_reads_the_rest(
    tmp_path: Path,
) -> None:
    """The demo ends when everything sent is read, and the driver has drained."""
    world = World(at_kill=lambda _: None)
    report = run(world, tmp_path)

    assert (report.kills, report.checkpoint_deletions) == (2, 1)
    assert not (tmp_path / "checkpoints").exists()
    assert world.started == 3
    assert world.read == world.sent == 100
    assert world.is_drained


def test_a_kill_that_came_too_late_is_not_counted_and_tried_again(
    tmp_path: Path,
) -> None:
    """A batch that was published when its driver died was not hit in the middle."""
    late = iter([True])

    def publish_once(world: World) -> None:
        if next(late, False):
            world.publish()

    world = World(at_kill=publish_once)
    report = run(world, tmp_path)

    assert report.kills == 2
    assert world.started == 4
    assert world.read == 100


@pytest.mark.timeout(30)
def test_a_driver_that_is_always_too_quick_is_reported_as_unkilled(
    tmp_path: Path,
) -> None:
    """The demo ends without its kills, and says so, instead of waiting for ever."""
    world = World(at_kill=lambda _: None, is_quick=True)
    report = run(world, tmp_path)

    assert (report.kills, report.checkpoint_deletions) == (0, 0)
    assert world.read == 100


@pytest.mark.timeout(30)
def test_publications_behind_the_last_plan_are_waited_for(tmp_path: Path) -> None:
    """There is no plan to come then, until more is sent."""
    world = WorldAhead(at_kill=lambda _: None, is_quick=True)
    report = run(world, tmp_path)

    assert report.kills == 0
    assert world.read == 100
