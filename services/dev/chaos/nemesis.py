"""Carries out a plan: waits for each fault's moment, and makes sure that it hit.

A fault counts if its target was alive and at work; otherwise it is tried again.
"""

from __future__ import annotations

import datetime as dt
import random
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tallyweir.services.dev.chaos.chaos_world import PIPELINE, ChaosWorld
from tallyweir.services.dev.chaos.plan import ChaosPlan, Injection, Kind
from tallyweir.services.dev.chaos.registered_writers import RegisteredWriters
from tallyweir.services.dev.chaos.sender import Gate
from tallyweir.services.dev.chaos.supervisor import PATIENCE_S, Driver, Supervisor
from tallyweir.sinks.protocol.errors import FatalError

_MID_BATCH_WAIT_S = 10.0
_CUT_WAIT_S = 20.0
_ASKING_WAIT_S = 20.0
_POLL_S = 0.05
_STOP_DEADLINE_S = 30.0
#: A checkpoint is old once the driver has published this many batches after the copy.
_BATCHES_TO_AGE = 2
_UNAVAILABLE = "REGISTRY_UNAVAILABLE"
_WORKER_MARK = "tallyweir.spark_jobs.engine.python_daemon"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverDeath:
    """A driver that the nemesis stopped.

    Attributes:
        at: The time of its death, by the wall clock.
        epoch: Its epoch.
    """

    at: dt.datetime
    epoch: int


@dataclass(slots=True, kw_only=True)
class Harm:
    """What the nemesis has done.

    Attributes:
        kinds: Faults that hit, by kind.
        deaths: Deaths of drivers.
        missed: Number of times that a fault hit nothing and was tried again.
    """

    kinds: Counter[Kind] = field(default_factory=Counter)
    deaths: list[DriverDeath] = field(default_factory=list)
    missed: int = 0


class Nemesis:
    """Injects the faults of a plan.

    Args:
        world: The world that suffers the faults.
        plan: The faults and their moments.
        supervisor: The supervisor of the drivers.
        gate: Lets the senders go on as the faults come.
        read_progress: Counts the records that the pipeline has read.
        tell: Called with a line for each fault that hit.
    """

    def __init__(  # noqa: PLR0913, PLR0917 (each is another part of the world)
        self,
        world: ChaosWorld,
        plan: ChaosPlan,
        supervisor: Supervisor,
        gate: Gate,
        read_progress: Callable[[], int],
        tell: Callable[[str], None],
    ) -> None:
        self._world = world
        self._plan = plan
        self._supervisor = supervisor
        self._gate = gate
        self._read_progress = read_progress
        self._tell = tell
        self._source = random.Random(f"{plan.options.seed}/nemesis")  # noqa: S311
        self._pause = threading.Event()
        self.harm = Harm()

    def run(self) -> None:
        """Inject every fault.

        Raises:
            FatalError: A fault found nothing to hit, or nothing recovered.
        """
        for injection in self._plan.injections:
            stage = injection.number + 1
            self._gate.open_to(stage * self._plan.stage_records)
            self._await_progress(int(injection.progress * self._plan.records))
            self._inject(injection)
        self._gate.open_to(self._plan.records + 1)

    def _inject(self, injection: Injection) -> None:
        give_up = time.monotonic() + PATIENCE_S
        while time.monotonic() < give_up:
            driver = self._supervisor.await_mid_batch(
                injection.moment, _MID_BATCH_WAIT_S
            )
            if driver is not None and self._hit(injection, driver):
                self.harm.kinds[injection.kind] += 1
                self._tell(
                    f"fault {injection.number + 1}/{len(self._plan.injections)}: "
                    f"{injection}"
                )
                return
            self.harm.missed += 1
            self._give_work(self._plan.stage_records // 3)
        raise _stuck(f"{injection} found nothing to hit", self._supervisor)

    def _give_work(self, records: int) -> None:
        """Let the senders go on, if the pipeline has read all that they may send."""
        if self._read_progress() >= self._gate.open_until:
            self._gate.open_to(self._gate.open_until + max(1, records))

    def _hit(self, injection: Injection, driver: Driver) -> bool:
        """Carry out a fault; tell whether its target was alive and at work."""
        in_place = injection.in_place
        actions: dict[Kind, Callable[[], bool]] = {
            Kind.DRIVER_KILL: lambda: self._kill(driver),
            Kind.DRIVER_PAUSE: lambda: self._pause_driver(driver, injection.pause_s),
            Kind.TWO_DRIVERS: lambda: self._start_two(driver),
            Kind.WORKER_KILL: lambda: self._kill_worker(driver),
            Kind.KAFKA_KILL: self._kill_kafka,
            Kind.POSTGRES_STOP: lambda: self._stop_postgres(injection.database),
            Kind.CHECKPOINT_DELETED: lambda: self._delete_checkpoint(
                driver, in_place=in_place
            ),
            Kind.CHECKPOINT_RESTORED: lambda: self._restore_checkpoint(
                driver, in_place=in_place
            ),
            Kind.NETWORK_CUT: lambda: self._cut_network(injection),
            Kind.REGISTRY_KILL: lambda: self._kill_registry(driver),
            Kind.REGISTRY_WIPE: self._wipe_registry,
        }
        return actions[injection.kind]()

    def _kill(self, driver: Driver) -> bool:
        if not driver.is_in_batch:
            return False
        at = self._supervisor.kill(driver)
        self.harm.deaths.append(DriverDeath(at=at, epoch=driver.epoch))
        return True

    def _pause_driver(self, driver: Driver, pause_s: float) -> bool:
        """Stop a driver in a batch, let another take over, and wake the first."""
        until = time.monotonic() + pause_s
        self._supervisor.pause(driver)
        was_hit = driver.is_in_batch
        if was_hit:
            at = dt.datetime.now(dt.UTC)
            self.harm.deaths.append(DriverDeath(at=at, epoch=driver.epoch))
            successor = self._supervisor.start_driver()
            self._pause.wait(max(0.0, until - time.monotonic()))
        self._supervisor.resume(driver)
        if was_hit:
            self._await_start(successor)
        return was_hit

    def _start_two(self, driver: Driver) -> bool:
        with self._supervisor.no_restarts():
            if not self._kill(driver):
                return False
            two = [self._supervisor.start_driver() for _ in range(2)]
        for started in two:
            self._await_start(started)
        return True

    def _await_start(self, driver: Driver) -> None:
        if not self._supervisor.await_change(
            lambda: driver.epoch > 0 or driver.exit_code is not None, PATIENCE_S
        ):
            raise _stuck(f"driver {driver.number} did not start", self._supervisor)

    def _kill_worker(self, driver: Driver) -> bool:
        """Kill one of the Python processes that stage rows.

        If the driver stages rows itself, start a driver with such processes instead,
        which takes over.
        """
        if not driver.has_tasks:
            self._await_start(self._supervisor.start_driver())
            return False
        workers = [
            member
            for member in driver.process.members()
            if _is_worker(member) and not _has_children(member)
        ]
        if not workers or not driver.is_in_batch:
            return False
        return _kill_process(self._source.choice(workers), signal.SIGKILL)

    def _kill_kafka(self) -> bool:
        kafka = self._world.kafka
        process = kafka.daemon.find()
        if process is None or not _kill_process(process, signal.SIGKILL):
            return False
        kafka.start()
        return True

    def _stop_postgres(self, database: str) -> bool:
        """Stop a server as a crash does: on SIGQUIT it exits without a checkpoint."""
        server = self._world.servers[database]
        process = server.daemon.find()
        if process is None or not _kill_process(process, signal.SIGQUIT):
            return False
        server.start()
        return True

    def _delete_checkpoint(self, driver: Driver, *, in_place: bool) -> bool:
        checkpoints = _checkpoints(driver)
        if in_place:
            if not checkpoints.is_dir():
                return False
            _delete(checkpoints)
            return True
        with self._supervisor.no_restarts():
            if not self._kill(driver):
                return False
            _delete(checkpoints)
            return True

    def _restore_checkpoint(self, driver: Driver, *, in_place: bool) -> bool:
        """Copy the checkpoint, let it age, and put the copy back."""
        checkpoints = _checkpoints(driver)
        copy = self._world.directory / "checkpoint-copy"
        _delete(copy)
        if not _copy(checkpoints, copy):
            return False
        until = driver.batches + _BATCHES_TO_AGE
        self._gate.open_to(self._gate.open_until + self._plan.stage_records)
        self._supervisor.await_change(
            lambda: driver.batches >= until or not driver.serves, PATIENCE_S
        )
        at_work = self._supervisor.await_mid_batch(0.5, _MID_BATCH_WAIT_S)
        if at_work is not driver or driver.batches < until:
            return False
        if in_place:
            _delete(checkpoints)
            return _copy(copy, checkpoints)
        with self._supervisor.no_restarts():
            if not self._kill(driver):
                return False
            _delete(checkpoints)
            return _copy(copy, checkpoints)

    def _cut_network(self, injection: Injection) -> bool:
        assert injection.cut is not None
        proxy = self._world.proxies[injection.database]
        proxy.arm(injection.cut)
        deadline = time.monotonic() + _CUT_WAIT_S
        while time.monotonic() < deadline:
            if proxy.await_cut(_CUT_WAIT_S / 10):
                return True
            # The driver needs new batches, so that one of them can be cut.
            self._give_work(self._plan.batch_offsets_max)
        return proxy.disarm()

    def _wipe_registry(self) -> bool:
        """Wipe the registry, once the pipeline has read what names a new schema."""
        deadline = time.monotonic() + _MID_BATCH_WAIT_S
        while not (was_hit := self._writers.wipe()) and time.monotonic() < deadline:
            self._pause.wait(_POLL_S)
        return was_hit

    @property
    def _writers(self) -> RegisteredWriters:
        assert self._world.writers is not None, "only such a run has these faults"
        return self._world.writers

    def _kill_registry(self, driver: Driver) -> bool:
        """Take the registry away until the driver has asked it in vain."""
        self._writers.restore()
        registry = self._writers.registry
        process = registry.daemon.find()
        driver.error_code = ""
        if process is None or not _kill_process(process, signal.SIGKILL):
            return False
        # The driver needs records of a schema that it does not know.
        self._gate.open_to(self._gate.open_until + self._plan.stage_records)
        self._supervisor.await_change(
            lambda: driver.error_code == _UNAVAILABLE or not driver.serves,
            _ASKING_WAIT_S,
        )
        was_hit = driver.error_code == _UNAVAILABLE
        registry.start()
        return was_hit

    def _await_progress(self, records: int) -> None:
        """Wait until the pipeline has read this many records."""
        last, since = -1, time.monotonic()
        while (now := self._read_progress()) < records:
            if now > last:
                last, since = now, time.monotonic()
            elif time.monotonic() - since > PATIENCE_S:
                raise _stuck(
                    f"{now:,} of {records:,} records were read", self._supervisor
                )
            self._pause.wait(_POLL_S)


def _stuck(what: str, supervisor: Supervisor) -> FatalError:
    drivers = ", ".join(map(str, supervisor.living())) or "none"
    return FatalError(
        "CHAOS_STUCK",
        saw=f"{what}, for {PATIENCE_S:.0f} s. Drivers alive: {drivers}.",
        why="The pipeline must go on by itself after every fault.",
        fix="Read the drivers' logs in the run's directory; if nothing was left to "
        "read, send more events.",
    )


def _checkpoints(driver: Driver) -> Path:
    return driver.state / "checkpoints" / PIPELINE


def _delete(directory: Path) -> None:
    # A driver may be writing into it, and may create some of its files again.
    shutil.rmtree(directory, ignore_errors=True)


def _copy(source: Path, target: Path) -> bool:
    """Copy a directory that may change meanwhile; tell whether it had any content."""
    try:
        shutil.copytree(source, target, dirs_exist_ok=True)
    except (shutil.Error, OSError):
        # Spark renames and deletes its files while they are copied.
        return target.is_dir() and any(target.iterdir())
    return any(target.iterdir())


def _is_worker(process: psutil.Process) -> bool:
    try:
        return any(_WORKER_MARK in word for word in process.cmdline())
    except psutil.Error:
        return False


def _has_children(process: psutil.Process) -> bool:
    try:
        return bool(process.children())
    except psutil.Error:
        return False


def _kill_process(process: psutil.Process, number: signal.Signals) -> bool:
    """Signal a process and wait for its end; tell whether the process existed."""
    try:
        process.send_signal(number)
        process.wait(_STOP_DEADLINE_S)
    except psutil.NoSuchProcess:
        return False
    return True
