"""The supervisor starts a driver where one ended, but none where one was fenced."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tallyweir.services.dev.chaos.supervisor import FENCED, Driver, Supervisor
from tallyweir.services.process import driver_process

_DEADLINE_S = 60.0

# Stands in for the driver: the module of that name comes first on its path. Each start
# claims the next epoch; signals make it plan, publish and end.
STAND_IN = """
import json, os, signal, sys
say = lambda **event: print(json.dumps(event), file=sys.stderr, flush=True)
claims = os.open(os.environ["CLAIMS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
os.write(claims, b"1")
# Where the own claim ends, whoever else appends one at the same time.
epoch = os.lseek(claims, 0, os.SEEK_CUR)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
signal.signal(signal.SIGHUP, lambda *_: sys.exit(76))
signal.signal(signal.SIGUSR1, lambda *_: say(event="batch planned", sequence=1))
signal.signal(
    signal.SIGUSR2,
    lambda *_: say(event="batch published", epoch=epoch, sequence=1, seconds=0.5),
)
say(event="driver started", epoch=epoch)
while True:
    signal.pause()
"""


@pytest.fixture
def supervisor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervisor]:
    """A supervisor of stand-ins; nothing of them is left."""
    (tmp_path / "tallyweir").mkdir()
    (tmp_path / "tallyweir" / "__init__.py").touch()
    (tmp_path / "tallyweir" / "spark_jobs.py").write_text(STAND_IN)
    monkeypatch.setattr(driver_process, "_LEAVE_TIMEOUT_S", 0.2)
    claims = str(tmp_path / "claims")
    supervisor = Supervisor(
        Path("p.yaml"),
        tmp_path,
        lambda _: {**os.environ, "PYTHONPATH": str(tmp_path), "CLAIMS": claims},
        lambda _: None,
    )
    supervisor.start()
    yield supervisor
    supervisor.close()
    living = supervisor.living()
    assert all(driver.process.exit_code is not None for driver in living)


def started(supervisor: Supervisor) -> Driver:
    """Start a driver and wait for its epoch."""
    driver = supervisor.start_driver()
    assert_in_time(supervisor, lambda: driver.epoch > 0)
    return driver


def assert_in_time(supervisor: Supervisor, is_there: Callable[[], bool]) -> None:
    """Wait for something that drivers do."""
    assert supervisor.await_change(is_there, _DEADLINE_S)


def send(driver: Driver, number: signal.Signals) -> None:
    """Signal the driver alone, not its children."""
    driver.process.members()[0].send_signal(number)


def test_a_killed_driver_is_started_again_in_its_place(supervisor: Supervisor) -> None:
    """As an init system does, with the state directory that is there."""
    first = started(supervisor)
    supervisor.kill(first)

    def is_replaced() -> bool:
        now = supervisor.serving()
        return now is not None and now.epoch == 2

    assert_in_time(supervisor, is_replaced)
    second = supervisor.serving()
    assert second is not None
    assert second.state == first.state
    assert [end.exit_code for end in supervisor.ends] == [-signal.SIGKILL]


def test_a_fenced_driver_is_not_started_again(supervisor: Supervisor) -> None:
    """Two drivers that are started again for ever would fence each other for ever."""
    first = started(supervisor)
    second = started(supervisor)
    assert first.is_superseded
    assert not second.is_superseded

    send(first, signal.SIGHUP)
    assert_in_time(supervisor, lambda: first.exit_code == FENCED)

    assert supervisor.serving() is second
    assert supervisor.starts == 2


def test_of_two_drivers_that_start_at_once_the_last_to_claim_serves(
    supervisor: Supervisor,
) -> None:
    """Who was started first does not matter, nor who was not ready yet."""
    two = [supervisor.start_driver() for _ in range(2)]
    assert_in_time(supervisor, lambda: all(driver.epoch > 0 for driver in two))

    older, newer = sorted(two, key=lambda driver: driver.epoch)
    assert older.is_superseded
    assert not newer.is_superseded
    assert supervisor.serving() is newer


def test_a_paused_driver_does_not_serve_and_is_not_replaced(
    supervisor: Supervisor,
) -> None:
    """Whoever pauses a driver decides who follows it."""
    driver = started(supervisor)
    supervisor.pause(driver)
    assert supervisor.serving() is None
    assert supervisor.starts == 1

    supervisor.resume(driver)
    assert supervisor.serving() is driver


def test_a_driver_is_in_a_batch_from_its_plan_to_its_publication(
    supervisor: Supervisor,
) -> None:
    """A fault must meet a driver at work."""
    driver = started(supervisor)
    assert supervisor.await_mid_batch(0.5, 0.2) is None

    send(driver, signal.SIGUSR1)
    assert supervisor.await_mid_batch(0.5, _DEADLINE_S) is driver

    send(driver, signal.SIGUSR2)
    assert_in_time(supervisor, lambda: driver.batches == 1)
    assert not driver.is_in_batch
    assert [told.epoch for told in supervisor.published] == [1]


def test_draining_ends_every_driver_and_starts_none(supervisor: Supervisor) -> None:
    """Peace is not another fault."""
    driver = started(supervisor)

    assert supervisor.drain()
    assert driver.exit_code == 0
    assert supervisor.starts == 1


def test_no_driver_is_started_while_restarts_are_held(supervisor: Supervisor) -> None:
    """A fault that needs a dead driver has one for as long as it needs it."""
    driver = started(supervisor)
    with supervisor.no_restarts():
        supervisor.kill(driver)
        assert_in_time(supervisor, lambda: driver.exit_code is not None)
        assert supervisor.starts == 1
    assert_in_time(supervisor, lambda: supervisor.starts == 2)
