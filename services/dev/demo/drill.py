"""The course of a demo: send, kill in mid-batch, restart, read to the end, drain."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from tallyweir.services.dev.demo.demo_world import PIPELINE, DemoWorld, Ledger
from tallyweir.services.dev.demo.expected_results import ExpectedResults
from tallyweir.services.dev.demo.scenario import FlightStream, Kill, Scenario
from tallyweir.services.process.driver_process import SILENCE_MAX_S, DriverProcess
from tallyweir.services.produce.faults import Expectation
from tallyweir.sinks.kafka_admin import KafkaAdmin


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoProgress:
    """Counts so far.

    Attributes:
        sent: Messages that were given to the producer.
        read: Records that the published batches have read.
        committed: Events among these that became results.
        duplicates: Repeats among these that were dropped.
        dead: Dead letters among these.
        batch: Number of the last published batch.
        kills: Drivers that died in mid-batch.
    """

    sent: int = 0
    read: int = 0
    committed: int = 0
    duplicates: int = 0
    dead: int = 0
    batch: int = 0
    kills: int = 0


class Watcher(Protocol):
    """Gets lines and counts about the progress of a demo."""

    def tell(self, text: str) -> None:
        """Take a line about something that has happened."""

    def show(self, progress: DemoProgress) -> None:
        """Take the changed counts; called often."""


#: The assumed duration of a batch, until a batch has shown how long batches take.
_FIRST_BATCH_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillReport:
    """What the drill did to the pipeline, and what the results must be.

    Attributes:
        expectation: Counts of the messages, by what was done to them.
        expected: The results, counted from the flights.
        kills: Number of drivers that died in mid-batch, so that the batch was not
            published.
        kills_wanted: Number of kills that the scenario asked for.
        checkpoint_deletions: Number of restarts without the former checkpoint.
    """

    expectation: Expectation
    expected: ExpectedResults
    kills: int
    kills_wanted: int
    checkpoint_deletions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillParts:
    """What a drill works with, all from one world.

    Attributes:
        stream: The messages, which are not sent yet.
        ledger: The ledger of the pipeline that reads the messages.
        topic: Where the log of the topic that the messages are sent to ends.
        start_driver: Starts a driver, which is ended after the block.
        checkpoints: The directory of the driver's Spark checkpoints.
    """

    stream: FlightStream
    ledger: Ledger
    topic: KafkaAdmin
    start_driver: Callable[[], AbstractContextManager[DriverProcess]]
    checkpoints: Path


def run_drill(world: DemoWorld, scenario: Scenario, watcher: Watcher) -> DrillReport:
    """Run a scenario in a fresh world; return when the last driver has drained.

    Raises:
        FatalError: A driver ended by itself, was silent too long, or did not drain
            with exit code 0.
        RetryableError: A server went away.
    """
    bootstrap = world.endpoints.kafka_bootstrap
    environment = world.driver_environment() | {
        "TALLYWEIR_BATCH_OFFSETS_MAX": str(scenario.batch_offsets_max)
    }
    parts = DrillParts(
        stream=FlightStream(bootstrap, world.pipeline_file, scenario),
        ledger=Ledger(world.home, PIPELINE),
        topic=KafkaAdmin(bootstrap, world.topic),
        start_driver=lambda: DriverProcess(world.pipeline_file, environment),
        checkpoints=world.checkpoints,
    )
    return Drill(parts, scenario, watcher).run()


class Drill:
    """One run of a scenario.

    Args:
        parts: Parts that no drill has used before.
        scenario: What goes wrong and when.
        watcher: Gets lines and counts about the progress.
    """

    def __init__(self, parts: DrillParts, scenario: Scenario, watcher: Watcher) -> None:
        self._parts = parts
        self._scenario = scenario
        self._watcher = watcher
        self._progress = DemoProgress()
        self._checkpoint_deletions = 0
        self._shortest_batch_s: float | None = None

    def run(self) -> DrillReport:
        """Run the scenario; ``run_drill`` says what it raises."""
        for part, kill in zip(self._scenario.parts, self._scenario.kills, strict=True):
            self._send_and_kill(part, kill)
        with self._parts.start_driver() as driver:
            self._send(None)
            # A driver that is told to stop before it listens would not drain.
            self._await(driver, "driver started")
            while not self._has_read_all():
                self._await(driver, "batch published")
            driver.drain()
        self._watcher.tell("driver drained after SIGTERM, exit code 0")
        return DrillReport(
            expectation=self._parts.stream.expectation,
            expected=self._parts.stream.expected,
            kills=self._progress.kills,
            kills_wanted=len(self._scenario.kills),
            checkpoint_deletions=self._checkpoint_deletions,
        )

    def _send_and_kill(self, part: int, kill: Kill) -> None:
        """Send a part and kill drivers until one has died in mid-batch.

        If the batch turns out to be published just before the kill, the drill kills
        another driver, as long as there are messages to read.
        """
        is_sent = False
        is_mid_batch = False
        while not is_mid_batch:
            with self._parts.start_driver() as driver:
                if not is_sent:
                    self._send(part)
                    is_sent = True
                sequence = self._await_moment(driver, kill)
                if sequence is None:
                    return
                driver.kill()
            is_mid_batch = self._parts.ledger.read_last_sequence() < sequence
            if is_mid_batch:
                self._advance(kills=self._progress.kills + 1)
            self._watcher.tell(
                f"driver killed (SIGKILL) in batch {sequence}, "
                + ("before" if is_mid_batch else "just after")
                + " it was published"
            )
        if kill.loses_checkpoint:
            shutil.rmtree(self._parts.checkpoints)
            self._checkpoint_deletions += 1
            self._watcher.tell(f"deleted the checkpoint {self._parts.checkpoints}")

    def _await_moment(self, driver: DriverProcess, kill: Kill) -> int | None:
        """Wait for the middle of a batch, and return the batch's number.

        Returns None if the driver was too quick and no message is left to send.
        """
        last = self._parts.ledger.read_last_sequence()
        until = last + kill.batches_before
        while True:
            if self._has_read_all() and self._send(self._scenario.parts[-1]) == 0:
                return None
            # A driver plans a batch before it publishes the one ahead of it, so after
            # the last plan it still has batches to publish.
            event = self._await(driver, "batch planned", "batch published")
            if event["event"] == "batch planned" and last >= until:
                pause_s = kill.moment * (self._shortest_batch_s or _FIRST_BATCH_S)
                if not self._hears_of(driver, event["sequence"], pause_s):
                    return int(event["sequence"])
            last = self._progress.batch

    def _hears_of(self, driver: DriverProcess, sequence: int, timeout_s: float) -> bool:
        """Tell whether a batch is published before the timeout."""
        deadline = time.monotonic() + timeout_s
        while self._progress.batch < sequence:
            left_s = deadline - time.monotonic()
            if self._listen(driver, left_s, "batch published") is None:
                return False
        return True

    def _send(self, count: int | None) -> int:
        sent = self._parts.stream.send(count, lambda total: self._advance(sent=total))
        self._watcher.tell(f"{sent:,} messages sent, {self._progress.sent:,} in all")
        return sent

    def _has_read_all(self) -> bool:
        ends = {
            place: position.log_end_offset
            for place, position in self._parts.topic.read_positions().items()
        }
        return self._parts.ledger.read_positions() == ends

    def _await(self, driver: DriverProcess, *names: str) -> dict[str, Any]:
        event = self._listen(driver, SILENCE_MAX_S, *names)
        if event is None:
            wanted = " or ".join(map(repr, names))
            raise driver.failure(f"reported no {wanted} for {SILENCE_MAX_S:.0f} s")
        return event

    def _listen(
        self, driver: DriverProcess, timeout_s: float, *names: str
    ) -> dict[str, Any] | None:
        """Take in the driver's events until one of these names comes, or a timeout."""
        deadline = time.monotonic() + timeout_s
        while True:
            event = driver.next_event(deadline - time.monotonic())
            if event is not None:
                self._take_in(event)
            if event is None or event["event"] in names:
                return event

    def _take_in(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "driver started":
                self._watcher.tell(f"driver started, epoch {event['epoch']}")
            case "batch published":
                self._take_in_batch(event)
            case "starting over":
                self._watcher.tell(f"driver starts over: {event['saw']}")

    def _take_in_batch(self, batch: dict[str, Any]) -> None:
        self._shortest_batch_s = min(
            batch["seconds"], self._shortest_batch_s or batch["seconds"]
        )
        former = self._progress
        self._advance(
            read=former.read + batch["read"],
            committed=former.committed + batch["committed"],
            duplicates=former.duplicates + batch["duplicate"],
            dead=former.dead + batch["dead"],
            batch=batch["sequence"],
        )
        self._watcher.tell(
            f"batch {batch['sequence']} published: {batch['read']:,} read, "
            f"{batch['committed']:,} committed, {batch['duplicate']:,} duplicates, "
            f"{batch['dead']:,} dead, {batch['seconds']:.1f} s"
        )

    def _advance(self, **counts: int) -> None:
        self._progress = replace(self._progress, **counts)
        self._watcher.show(self._progress)
