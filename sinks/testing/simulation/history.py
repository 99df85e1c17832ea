"""Histories: two drivers, a resolver and an operator, with faults; one or many."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

from tallyweir.sinks import faultpoints
from tallyweir.sinks.faultpoints import FaultPoint, Side
from tallyweir.sinks.protocol.errors import (
    FatalError,
    FencedError,
    RetryableError,
    TallyweirError,
)
from tallyweir.sinks.protocol.resolution import resolve
from tallyweir.sinks.testing.memory_participant import MemoryParticipantDatabase
from tallyweir.sinks.testing.memory_server import LostAnswer
from tallyweir.sinks.testing.simulation.checks import Checker
from tallyweir.sinks.testing.simulation.driver import DriverKilledError, SimulatedDriver
from tallyweir.sinks.testing.simulation.faults import (
    ARMED,
    BETWEEN_CALLS,
    Coverage,
    FaultKind,
    Swarm,
    place_of,
)
from tallyweir.sinks.testing.simulation.world import Cut, World

#: How deeply actors may be nested within each other's steps.
_NESTING_MAX = 3

#: Limit on batches and starts of the last driver once all faults have ceased.
_PEACEFUL_STEPS_MAX = 60

#: Errors with which a driver or the resolver reports that databases disagree.
_DETECTIONS = ("PARTICIPANT_AHEAD", "PARTICIPANT_BEHIND", "BRANCH_LOST")

#: Other fatal errors that a driver may end with; these three only after a restore.
_AFTER_RESTORE = ("CLAIM_LOST", "OFFSETS_DISAGREE", "SEQUENCE_DISAGREES")
_STAGING_GONE = "STAGING_GONE"


class History:
    """One history; the seed decides what happens in it.

    Attributes:
        trace: What happened, in order, one line each.
        coverage: What went wrong, counted.
    """

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)  # noqa: S311 - no secret
        self._swarm = Swarm.draw(self._chance)
        self._world = World(self._chance)
        self._checker = Checker(self._world)
        self.trace: list[str] = []
        self.coverage = Coverage(happened=self._world.happened)
        #: Consistent backups.
        self._cuts: list[Cut] = [self._world.cut()]
        self._drivers: list[SimulatedDriver | None] = [None, None]
        #: All drivers that ever started; tasks of dead ones may still run.
        self._started: list[SimulatedDriver] = []
        #: Actors that work now, the innermost last: slots of drivers; None is the
        #: resolver.
        self._running: list[int | None] = []
        #: For each of them, whether databases that disagreed were restored to one
        #: moment while it worked.
        self._mended: list[bool] = []
        self._at_peace = False

    def run(self) -> None:
        """Let faults happen, then let one driver and the resolver finish.

        Raises:
            AssertionError: The protocol broke a promise.
        """
        for point in FaultPoint:
            for side in Side:
                faultpoints.arm(point, self._at(point, side), side=side)
        self._world.set_interlude(self._between_calls)
        try:
            slot = 0
            for _ in range(self._swarm.steps):
                if self._chance.random() >= self._swarm.stickiness:
                    slot = 1 - slot
                if self._chance.random() < 0.1:  # noqa: PLR2004 - now and then
                    self._run_resolver()
                else:
                    self._run_driver(slot)
            self._make_peace()
        finally:
            faultpoints.disarm_all()

    def _run_driver(self, slot: int) -> None:
        """Let a driver run its next batch; start a driver if the slot is empty."""
        self._running.append(slot)
        restores = self._checker.restores
        self._mended.append(False)
        driver = self._drivers[slot]
        try:
            if driver is None:
                driver = self._new_driver()
                driver.start()
                self._check_started(driver, restores)
                self._drivers[slot] = driver
                self._started.append(driver)
            driver.run_batch()
            self._note("ran a batch")
        except DriverKilledError:
            self._drivers[slot] = None
            self._outlive(driver)
        except TallyweirError as error:
            self._drivers[slot] = None
            self._end_with(error, restores)
        finally:
            self._running.pop()
            self._mended.pop()
        self._look()

    def _new_driver(self) -> SimulatedDriver:
        return SimulatedDriver(
            self._world, self._chance, batch_length=self._swarm.batch_length
        )

    def _check_started(self, driver: SimulatedDriver, restores: int) -> None:
        """Check that a driver did not start although databases disagree."""
        self._note(f"started as epoch {driver.epoch}")
        if driver.holds_newest_claim and restores == self._checker.restores:
            differences = self._checker.differences()
            assert not differences, f"a driver starts although {differences}"

    def _outlive(self, driver: SimulatedDriver | None) -> None:
        """Let the server act on statements that a dead process had just sent."""
        self._note("died")
        if driver is not None and self._chance.random() < 0.3:  # noqa: PLR2004
            was_at_peace, self._at_peace = self._at_peace, True
            driver.work_late()
            self._at_peace = was_at_peace

    def _run_resolver(self) -> None:
        self._running.append(None)
        self._mended.append(False)
        restores = self._checker.restores
        try:
            home, databases = self._world.resolver_ports()
            done = resolve(home, databases, at_rest=None)
            self._note(
                f"committed {len(done.committed)}, rolled back {len(done.rolled_back)}"
            )
        except DriverKilledError:
            self._note("died")
        except TallyweirError as error:
            self._end_with(error, restores)
        finally:
            self._running.pop()
            self._mended.pop()
        self._look()

    def _end_with(self, error: TallyweirError, restores: int) -> None:
        """Judge the error that an actor ended with; repair what it has found.

        An actor compares twice. So a false alarm is excused if databases went back
        twice while it worked. It is also excused if a restore mended a true
        disagreement before the actor reported it, or if the actor missed a branch whose
        decision home may have forgotten meanwhile. In all cases the actor must stop.
        """
        self._note(f"ends: {error.code}")
        if error.code in _DETECTIONS:
            went_back = self._checker.restores - restores
            excused = (
                went_back > (0 if error.code == "BRANCH_LOST" else 1)
                or self._mended[-1]
            )
            differences = self._checker.differences()
            assert differences or excused, f"a false alarm: {error}"
            if differences:
                self.coverage.happened[f"detected: {error.code}"] += 1
                self._repair()
            return
        self.coverage.happened[f"stopped: {error.code}"] += 1
        if isinstance(error, RetryableError | FencedError):
            return
        assert isinstance(error, FatalError), f"nobody can act on {error}"
        is_expected = error.code == _STAGING_GONE or (
            error.code in _AFTER_RESTORE and self._checker.restores
        )
        assert is_expected, f"a driver ended with {error}"

    def _repair(self) -> None:
        """Do what an operator does: put all databases back to one moment."""
        self._note("operator restores all databases")
        self._world.restore(self._chance.choice(self._cuts))
        self._checker.note_restore()
        # The actors around this one may have seen the disagreement too.
        self._mended = [True] * len(self._mended)

    def _look(self) -> None:
        at_rest = not self._running and not self._world.has_late_statements
        self._checker.check(at_rest=at_rest)
        if not self._checker.is_torn:
            self._cuts.append(self._world.cut())

    def _at(self, point: FaultPoint, side: Side) -> Callable[[], None]:
        place = place_of(point, side)

        def reach() -> None:
            if self._at_peace:
                return
            slot = self._running[-1]
            driver = None if slot is None else self._drivers[slot]
            if driver is not None and self._chance.random() < 0.5:  # noqa: PLR2004
                driver.work()
            if self._chance.random() < 0.1:  # noqa: PLR2004 - a backup is running
                self._look()
            self._maybe_fail(place)

        return reach

    def _between_calls(self, call: str) -> None:
        if not self._at_peace:
            self._maybe_fail(BETWEEN_CALLS, call)

    def _maybe_fail(self, place: str, call: str = "") -> None:
        self.coverage.reached[place] += 1
        kind = self._swarm.pick(self._chance, place)
        if kind is None:
            return
        nests = kind in (FaultKind.OTHER_DRIVER, FaultKind.RESOLVER)
        if nests and len(self._running) >= _NESTING_MAX:
            return
        if kind is FaultKind.OTHER_DRIVER and {0, 1} <= set(self._running):
            return
        self._note(f"{place}{f' ({call})' if call else ''}: {kind.value}")
        self.coverage.places[place] += 1
        if kind not in ARMED:
            self.coverage.happened[kind.value] += 1
        self._inject(kind)

    def _inject(self, kind: FaultKind) -> None:
        """Inject a fault."""
        match kind:
            case FaultKind.KILL:
                raise DriverKilledError
            case FaultKind.OTHER_DRIVER | FaultKind.RESOLVER:
                self._let_another_work(kind)
            case FaultKind.CRASH_HOME:
                self._world.home.crash()
            case FaultKind.CRASH_OTHER:
                self._choose_other().crash()
            case (
                FaultKind.RESTORE_HOME | FaultKind.RESTORE_OTHER | FaultKind.RESTORE_ALL
            ):
                self._go_back(kind)
            case FaultKind.ACT_LATE:
                self._world.act_late()
            case FaultKind.ZOMBIE_TASK:
                self._run_zombie_task()
            case _:
                self._arm(kind)

    def _let_another_work(self, kind: FaultKind) -> None:
        """Pause the working actor; the server may end its transaction meanwhile."""
        self._world.home.ends_lock_holders = self._chance.random() < 0.5  # noqa: PLR2004
        if kind is FaultKind.RESOLVER:
            self._run_resolver()
        else:
            idle = [slot for slot in (0, 1) if slot not in self._running]
            self._run_driver(self._chance.choice(idle))

    def _go_back(self, kind: FaultKind) -> None:
        """Restore one database, or all."""
        # Prefer a recent backup: it differs in few batches.
        reach = self._chance.choice((2, 4, len(self._cuts)))
        cut = self._chance.choice(self._cuts[-reach:])
        differed = bool(self._checker.differences())
        if kind is FaultKind.RESTORE_HOME:
            self._world.home.restore(cut.home)
        elif kind is FaultKind.RESTORE_OTHER:
            other = self._choose_other()
            other.restore(cut.others[other.name])
        else:
            self._world.restore(cut)
        self._checker.note_restore()
        if differed and not self._checker.differences():
            self._mended = [True] * len(self._mended)

    def _arm(self, kind: FaultKind) -> None:
        """Make a server fail a later call."""
        answer = self._chance.choice(list(LostAnswer))
        match kind:
            case FaultKind.LOSE_COMMIT:
                self._world.home.answers_to_lose.append(answer)
            case FaultKind.LOSE_PREPARE:
                self._choose_other().prepares_to_lose.append(answer)
            case FaultKind.LOSE_FINISH:
                self._choose_other().finishes_to_lose.append(answer)
            case _:
                server = self._chance.choice(list(self._world.servers.values()))
                server.calls_to_fail = self._chance.randrange(1, 4)

    def _choose_other(self) -> MemoryParticipantDatabase:
        return self._chance.choice(list(self._world.others.values()))

    def _run_zombie_task(self) -> None:
        if not self._started:
            return
        driver = self._chance.choice(self._started)
        try:
            driver.run_zombie_task()
        except FatalError as error:
            assert error.code == _STAGING_GONE, error  # noqa: PT017

    def _make_peace(self) -> None:
        """Stop all faults, and let the last driver and the resolver finish."""
        self._note("peace")
        self._at_peace = True
        world = self._world
        world.home.ends_lock_holders = True
        world.home.answers_to_lose.clear()
        for database in world.others.values():
            database.prepares_to_lose.clear()
            database.finishes_to_lose.clear()
        for server in world.servers.values():
            server.calls_to_fail = 0
        self._drivers = [None, None]
        # Late statements may arrive before or after the last driver starts.
        arrives_at = self._chance.randrange(4)
        steps = 0
        # At least one driver starts, and so finds out whether databases disagree.
        while not world.is_read or steps <= arrives_at:
            if steps == arrives_at:
                world.act_late()
            self._run_driver(0)
            steps += 1
            assert steps < _PEACEFUL_STEPS_MAX, "the last driver does not get on"
        world.act_late()
        self._run_resolver()
        self._checker.check_end()

    def _note(self, what: str) -> None:
        actor = self._running[-1] if self._running else "operator"
        name = "resolver" if actor is None else f"driver {actor}"
        self.trace.append(f"{'  ' * len(self._running)}{name}: {what}")


#: Histories that a process runs in a row; its start takes as long as a hundred.
_IN_A_ROW = 1_000


class HistoryFailedError(AssertionError):
    """A history broke a promise; the message has its trace and its seed."""


def run_history(seed: int) -> History:
    """Run one history.

    Raises:
        HistoryFailedError: The history broke a promise.
    """
    history = History(seed)
    try:
        history.run()
    except Exception as error:
        trace = "\n".join(history.trace)
        raise HistoryFailedError(
            f"{trace}\n{type(error).__name__}: {error}\n"
            f"again: .venv/bin/python -m tallyweir.sinks.testing.simulation {seed}"
        ) from error
    return history


def run_histories(first: int, count: int) -> Coverage:
    """Run the histories of some seeds; return what went wrong in them.

    Many histories are spread over the machine's cores: each has its own world.

    Raises:
        HistoryFailedError: A history broke a promise.
    """
    if count <= _IN_A_ROW:
        return _run_in_a_row(first, count)
    firsts = range(first, first + count, _IN_A_ROW)
    counts = [min(_IN_A_ROW, first + count - start) for start in firsts]
    coverage = Coverage()
    # A process with threads must not be forked, and a test runner may have threads.
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(mp_context=spawned) as processes:
        for found in processes.map(_run_in_a_row, firsts, counts):
            coverage.add(found)
    return coverage


def _run_in_a_row(first: int, count: int) -> Coverage:
    coverage = Coverage()
    for seed in range(first, first + count):
        coverage.add(run_history(seed).coverage)
    return coverage
