"""Keeps a driver running, as an init system does, and knows what each one is doing.

When the driver with the highest epoch ends, the supervisor starts another in its place.
Among several drivers, the one with the highest epoch serves. The others are superseded,
and must find that out by themselves (exit code 76).
"""

from __future__ import annotations

import contextlib
import datetime as dt
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tallyweir.services.process.driver_process import DriverProcess

FENCED = 76
#: More than a driver on a busy machine needs, whatever it waits for.
PATIENCE_S = 600.0
_TICK_S = 0.02
_SHORTEST_BATCH_S = 0.2
_SMALL_BATCH = "TALLYWEIR_SMALL_BATCH_OFFSETS_MAX"
#: More offsets than any batch of a run has.
_ANY_BATCH = 1_000_000


@dataclass(slots=True, kw_only=True)
class Driver:
    """One driver process and what it has reported.

    Attributes:
        number: Its number in the order of starts, from 1.
        process: The process.
        state: Its state directory.
        epoch: Its epoch; 0 until it has claimed one.
        is_in_batch: Whether it has planned a batch and not published it.
        planned: The sequence of the batch that it planned last.
        in_batch_since: When it planned that batch, by the monotonic clock.
        batches: Number of batches that it has published.
        batch_s: How long its last batch took, in seconds.
        is_paused: Whether it is stopped by a signal.
        is_killed: Whether the nemesis has killed it.
        is_superseded: Whether a newer driver has claimed an epoch.
        is_draining: Whether it was told to stop.
        error_code: Why it has started over last; empty if it never has.
    """

    number: int
    process: DriverProcess
    state: Path
    epoch: int = 0
    is_in_batch: bool = False
    planned: int = 0
    in_batch_since: float = 0.0
    batches: int = 0
    batch_s: float = _SHORTEST_BATCH_S
    is_paused: bool = False
    is_killed: bool = False
    is_superseded: bool = False
    is_draining: bool = False
    error_code: str = ""
    exit_code: int | None = None

    @property
    def has_tasks(self) -> bool:
        """Whether Spark's tasks stage its batches, and not the driver itself."""
        return _has_tasks(self.number)

    @property
    def serves(self) -> bool:
        """Whether it may work: not ended, paused, superseded or killed."""
        return self.exit_code is None and not (
            self.is_paused or self.is_superseded or self.is_killed
        )

    def __str__(self) -> str:
        return f"driver {self.number} (epoch {self.epoch})"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverEnd:
    """How a driver ended.

    Attributes:
        driver: The driver.
        exit_code: Its exit code.
        last_line: The last line that it wrote.
    """

    driver: Driver
    exit_code: int
    last_line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedBatch:
    """A batch that a driver reported as published."""

    driver: int
    epoch: int
    sequence: int

    @property
    def has_tasks(self) -> bool:
        """Whether Spark's tasks staged it, and not the driver itself."""
        return _has_tasks(self.driver)


class Supervisor(threading.Thread):
    """Starts drivers and watches them, in a thread of its own.

    Args:
        pipeline_file: The pipeline file that the drivers run.
        directory: Holds their state directories and logs.
        environment_of: Returns the environment of a driver, by its state directory. The
            supervisor adds a setting that decides what stages the driver's batches.
        tell: Called with a line about each start and end.
    """

    def __init__(
        self,
        pipeline_file: Path,
        directory: Path,
        environment_of: Callable[[Path], dict[str, str]],
        tell: Callable[[str], None],
    ) -> None:
        super().__init__(name="supervisor", daemon=True)
        self._pipeline_file = pipeline_file
        self._directory = directory
        self._environment_of = environment_of
        self._tell = tell
        self._drivers: list[Driver] = []
        self._ends: list[DriverEnd] = []
        self._published: list[PublishedBatch] = []
        self._restarting = True
        self._ending = threading.Event()
        self._changed = threading.Condition(threading.RLock())

    def start_first(self, state: Path | None = None) -> None:
        """Begin to watch, start a driver, and wait until it has claimed an epoch.

        Raises:
            FatalError: It ended before.
        """
        self.start()
        first = self.start_driver(state)
        self.await_change(
            lambda: first.epoch > 0 or first.exit_code is not None, PATIENCE_S
        )
        if first.epoch == 0:
            # No fault has hit yet, so the driver's own output tells why.
            raise first.process.failure("did not start")

    @property
    def ends(self) -> tuple[DriverEnd, ...]:
        """The ends of all drivers that have ended so far."""
        with self._changed:
            return tuple(self._ends)

    @property
    def published(self) -> tuple[PublishedBatch, ...]:
        """Every batch that a driver has reported as published."""
        with self._changed:
            return tuple(self._published)

    @property
    def starts(self) -> int:
        """Number of drivers that were started."""
        return len(self._drivers)

    def serving(self) -> Driver | None:
        """Return the driver that should be working, if there is one."""
        with self._changed:
            serving = [driver for driver in self._drivers if driver.serves]
            return max(serving, key=lambda d: (d.epoch, d.number), default=None)

    def living(self) -> list[Driver]:
        """Return every driver that runs or is paused."""
        with self._changed:
            return [driver for driver in self._drivers if driver.exit_code is None]

    def start_driver(self, state: Path | None = None) -> Driver:
        """Start one more driver, by default with a state directory of its own."""
        with self._changed:
            number = len(self._drivers) + 1
            state = state or self._directory / f"driver-{number}"
            state.mkdir(parents=True, exist_ok=True)
            small = 0 if _has_tasks(number) else _ANY_BATCH
            process = DriverProcess(
                self._pipeline_file,
                {**self._environment_of(state), _SMALL_BATCH: str(small)},
                transcript=self._directory / f"driver-{number}.log",
            )
            driver = Driver(number=number, process=process, state=state)
            self._drivers.append(driver)
            return driver

    def await_change(self, is_there: Callable[[], bool], timeout_s: float) -> bool:
        """Wait for a change in the drivers; tell whether it came in time."""
        with self._changed:
            return self._changed.wait_for(is_there, timeout_s)

    def await_mid_batch(self, moment: float, timeout_s: float) -> Driver | None:
        """Return the serving driver in the middle of a batch; None after the timeout.

        Args:
            moment: When in the batch, as a share of the duration of its last batch.
            timeout_s: How long to wait.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            driver = self.serving()
            if driver is None or not self._await_batch(driver, deadline):
                self._ending.wait(_TICK_S)
                continue
            left_s = moment * driver.batch_s - (
                time.monotonic() - driver.in_batch_since
            )
            if self._stays_in_batch(driver, left_s):
                return driver
        return None

    def _await_batch(self, driver: Driver, deadline: float) -> bool:
        return self.await_change(
            lambda: driver.is_in_batch or not driver.serves,
            max(0.0, min(1.0, deadline - time.monotonic())),
        )

    def _stays_in_batch(self, driver: Driver, wait_s: float) -> bool:
        batches = driver.batches
        self.await_change(lambda: driver.batches != batches, max(0.0, wait_s))
        return driver.serves and driver.is_in_batch

    def kill(self, driver: Driver) -> dt.datetime:
        """SIGKILL a driver and its JVM; return when, by the wall clock."""
        with self._changed:
            driver.is_killed = True
            instant = dt.datetime.now(dt.UTC)
            with contextlib.suppress(ProcessLookupError):
                driver.process.kill()
            return instant

    def pause(self, driver: Driver) -> None:
        """SIGSTOP every process of a driver."""
        with self._changed:
            driver.is_paused = True
        _signal(driver, signal.SIGSTOP)

    def resume(self, driver: Driver) -> None:
        """SIGCONT every process of a driver."""
        _signal(driver, signal.SIGCONT)
        with self._changed:
            driver.is_paused = False

    @contextmanager
    def no_restarts(self) -> Iterator[None]:
        """Do not restart drivers that end within the block."""
        with self._changed:
            self._restarting = False
        try:
            yield
        finally:
            with self._changed:
                self._restarting = True

    def drain(self) -> bool:
        """Tell every driver to stop; return whether all of them stopped in time."""
        with self._changed:
            self._restarting = False
            for driver in self._drivers:
                if driver.exit_code is None:
                    driver.is_draining = True
                    driver.process.terminate()
        return self.await_change(
            lambda: all(driver.exit_code is not None for driver in self._drivers),
            PATIENCE_S,
        )

    def close(self) -> None:
        """Kill all processes of drivers that still run."""
        self._restarting = False
        self._ending.set()
        if self.is_alive():
            self.join()
        for driver in self._drivers:
            if driver.is_paused:
                _signal(driver, signal.SIGCONT)
            driver.process.__exit__(None, None, None)

    def run(self) -> None:
        """Watch until closed."""
        while not self._ending.wait(_TICK_S):
            with self._changed:
                changed = [self._watch(driver) for driver in [*self._drivers]]
                if any(changed):
                    self._changed.notify_all()
                self._restart_if_needed()

    def _watch(self, driver: Driver) -> bool:
        """Take in what a driver has reported; tell whether there was anything."""
        if driver.exit_code is not None:
            return False
        has_told_all = driver.process.has_told_all
        events = driver.process.take_events()
        for event in events:
            self._take_in(driver, event)
        if has_told_all and driver.process.exit_code is not None:
            self._take_in_end(driver, driver.process.exit_code)
            return True
        return bool(events)

    def _take_in(self, driver: Driver, event: dict[str, object]) -> None:
        match event["event"]:
            case "driver started":
                driver.epoch = int(str(event["epoch"]))
                driver.is_in_batch = False
                newest = max(other.epoch for other in self._drivers)
                for other in self._drivers:
                    # A driver that has claimed no epoch may still become the newest.
                    other.is_superseded = 0 < other.epoch < newest
                self._tell(f"driver {driver.number} started, epoch {driver.epoch}")
            case "batch planned":
                driver.planned = int(str(event["sequence"]))
                driver.is_in_batch = True
                driver.in_batch_since = time.monotonic()
            case "batch published":
                # The driver may have planned the next batch while publishing this one.
                driver.is_in_batch = driver.planned > int(str(event["sequence"]))
                driver.batches += 1
                driver.batch_s = max(
                    _SHORTEST_BATCH_S, float(str(event.get("seconds", 0)))
                )
                self._published.append(
                    PublishedBatch(
                        driver=driver.number,
                        epoch=int(str(event["epoch"])),
                        sequence=int(str(event["sequence"])),
                    )
                )
            case "starting over":
                driver.is_in_batch = False
                driver.error_code = str(event["error_code"])
                self._tell(f"driver {driver.number} starts over: {driver.error_code}")

    def _take_in_end(self, driver: Driver, code: int) -> None:
        driver.exit_code = code
        driver.is_in_batch = False
        last_line = driver.process.last_line
        self._ends.append(DriverEnd(driver=driver, exit_code=code, last_line=last_line))
        if not driver.is_killed:
            self._tell(f"driver {driver.number} ended, exit code {code}")

    def _restart_if_needed(self) -> None:
        """Start a driver in the place of the newest one, if that has ended."""
        if not self._restarting or not self._drivers or self.serving() is not None:
            return
        last = max(self._drivers, key=lambda d: (d.epoch, d.number))
        if last.exit_code is None:
            # It is paused, and the nemesis starts its successor; or it is about to end.
            return
        self.start_driver(last.state)


def _has_tasks(number: int) -> bool:
    """Let every other driver stage by itself, so that each way follows the other."""
    return number % 2 == 1


def _signal(driver: Driver, number: signal.Signals) -> None:
    for member in driver.process.members():
        try:
            member.send_signal(number)
        except psutil.NoSuchProcess:
            continue
