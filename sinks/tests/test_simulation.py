"""Two drivers, one database, random faults: every event counts exactly once.

A history is decided by its seed alone. At each fault point of a batch the scheduler
may kill the driver, let the other driver work in between, crash the server or put a
backup back. The checker looks after every step and once more after a driver has been
left in peace to finish.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from sinks import faultpoints
from sinks.faultpoints import FaultPoint
from sinks.protocol.coordinator import Coordinator
from sinks.protocol.errors import TallyweirError
from sinks.protocol.offsets import TopicPartition
from sinks.protocol.publication import Publisher
from sinks.testing.memory_home import DatabaseState, LostAnswer, MemoryDatabase
from sinks.testing.memory_stage import MemoryStage
from sinks.testing.planned_batches import RESULTS, Position, plan_batch

HISTORIES = 500
STEPS = 14

#: How far each partition reaches in Kafka.
LOG_END = {TopicPartition("events", 0): 40, TopicPartition("events", 1): 25}

#: How deep drivers may work within each other's fault points.
_NESTING_MAX = 2


class DriverKilledError(BaseException):
    """The process died at a fault point."""


def holds_record(offset: int) -> bool:
    """Tell whether an offset holds a record, not a transaction marker."""
    return offset % 5 != 4


def is_refused(offset: int) -> bool:
    """Tell whether the result table refuses an offset's row."""
    return offset % 11 == 3


class SimulatedDriver:
    """One driver's process: what it knows dies with it."""

    def __init__(self, database: MemoryDatabase, chance: random.Random) -> None:
        self._chance = chance
        self._home = database.new_driver()
        self._epoch = self._home.claim_epoch()
        # Attempts are counted from 1 by every driver, as Spark does.
        self._stage = MemoryStage(
            database, holds_record=holds_record, zombies=chance.random() < 0.5
        )
        self._coordinator = Coordinator(Publisher(self._home))
        self._batches = 0
        # Spark plans by its own memory, not by what Postgres says meanwhile.
        self._progress = self._home.read_progress()

    def run_batch(self) -> None:
        """Run the next batch of this process, whatever the other one did."""
        starts = {tp: p.next_offset for tp, p in self._progress.positions.items()}
        lengths = {
            tp: min(self._chance.randrange(9), end - starts.get(tp, 0))
            for tp, end in LOG_END.items()
        }
        with faultpoints.making(FaultPoint.PLANNED):
            plan = plan_batch(
                self._progress, lengths, epoch=self._epoch, spark_batch_id=self._batches
            )
        self._batches += 1
        self._coordinator.run_batch(plan, self._stage)
        self._progress = self._home.read_progress()


class Simulation:
    """One history."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.database = MemoryDatabase()
        self.database.refused = {
            (tp, offset)
            for tp, end in LOG_END.items()
            for offset in range(end)
            if is_refused(offset)
        }
        self.faults: Counter[str] = Counter()
        self.trace: list[str] = []
        self._backups: list[DatabaseState] = [self.database.state]
        self._drivers: list[SimulatedDriver | None] = [None, None]
        self._running: list[int] = []
        self._peace = False

    def run(self) -> None:
        """Let faults happen, then let one driver finish."""
        for point in FaultPoint:
            faultpoints.arm(point, lambda point=point: self._reach(point))  # type: ignore[misc]
        for _ in range(STEPS):
            self._step(self.chance.randrange(2))
        self._peace = True
        self.database.answers_to_lose.clear()
        survivor = SimulatedDriver(self.database, self.chance)
        while not self.finished:
            survivor.run_batch()
            self.check()

    @property
    def finished(self) -> bool:
        return LOG_END == {
            tp: position.next_offset
            for tp, position in self.database.state.positions.items()
        }

    def _step(self, slot: int) -> None:
        self._running.append(slot)
        try:
            driver = self._drivers[slot]
            if driver is None:
                self._note(f"driver {slot} starts")
                driver = SimulatedDriver(self.database, self.chance)
                self._drivers[slot] = driver
            driver.run_batch()
            self._note(f"driver {slot} ran a batch")
        except (TallyweirError, DriverKilledError) as error:
            self._note(f"driver {slot} ends: {error}")
            self._drivers[slot] = None
        finally:
            self._running.pop()
        self.check()
        self._backups.append(self.database.state)

    def _reach(self, point: FaultPoint) -> None:
        if self._peace:
            return
        slot = self._running[-1]
        fault = self.chance.choices(
            ["nothing", "kill", "other", "crash", "restore", "lose"],
            weights=[12, 2, 4, 1, 1, 2],
        )[0]
        self.faults[fault] += 1
        if fault != "nothing":
            self._note(f"driver {slot} at {point.value}: {fault}")
        match fault:
            case "kill":
                raise DriverKilledError(point.value)
            case "other" if len(self._running) < _NESTING_MAX:
                self._step(1 - slot)
            case "crash":
                self.database.crash()
            case "restore":
                self.database.restore(self.chance.choice(self._backups))
            case "lose":
                answer = self.chance.choice(list(LostAnswer))
                self.database.answers_to_lose.append(answer)

    def check(self) -> None:
        """Hold the results, the offsets and the ledger against each other."""
        state = self.database.state
        expected: list[Position] = [
            (tp, offset)
            for tp, position in state.positions.items()
            for offset in range(position.next_offset)
            if holds_record(offset) and not is_refused(offset)
        ]
        assert sorted(expected) == sorted(state.tables.get(RESULTS, ()))
        assert len(expected) == sum(e.counts.committed for e in state.ledger)
        assert list(range(1, len(state.ledger) + 1)) == [
            entry.sequence for entry in state.ledger
        ]
        epochs = [entry.key.epoch for entry in state.ledger]
        assert sorted(epochs) == epochs
        ends = dict.fromkeys(LOG_END, 0)
        for entry in state.ledger:
            for covered in entry.ranges:
                assert ends[covered.topic_partition] == covered.from_offset
                ends[covered.topic_partition] = covered.until_offset

    def _note(self, what: str) -> None:
        self.trace.append(what)


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    faultpoints.disarm_all()


def simulate(seed: int) -> Simulation:
    """Run one history; a failure tells its seed and what had happened."""
    history = Simulation(seed)
    try:
        history.run()
    except BaseException:
        print(f"seed={seed}", *history.trace, sep="\n")  # noqa: T201 - a failure must tell it
        raise
    return history


def test_each_event_counts_exactly_once_in_every_history() -> None:
    """Whatever faults happen, results and offsets agree after each step."""
    first = random.SystemRandom().randrange(2**32)
    faults: Counter[str] = Counter()
    for seed in range(first, first + HISTORIES):
        faults += simulate(seed).faults
    # A run that injected no faults proves nothing.
    assert min(faults.values()) > HISTORIES / 2, f"seed={first}: {faults}"


def test_a_seed_reproduces_its_history() -> None:
    """The same seed gives the same trace, so that a failure can be looked into."""
    assert simulate(1).trace == simulate(1).trace
