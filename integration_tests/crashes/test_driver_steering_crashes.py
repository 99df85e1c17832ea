"""A real driver that is killed around commands that steer it, each a real process.

test_steering_crashes has the whole matrix, with drivers that have no Spark; updates are
there only, because the command reads its file for longer than a server keeps the
transaction of a driver that hangs.
"""

from __future__ import annotations

import datetime as dt
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from integration_tests.harness.command import run_command
from integration_tests.harness.driver_world import SOURCE, DriverWorld
from integration_tests.harness.readings import NOON, Sent, sent
from tallyweir.services.local.embedded.state_directory import (
    STATE_DIRECTORY_VARIABLE,
    share_fetched,
)
from tallyweir.services.process.endpoints import KAFKA_VARIABLE
from tallyweir.sinks.settings import HOME_DSN_VARIABLE

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(900)]

_FIRST = (
    SOURCE
    + """
    outputs:
      - append: {{table: readings}}
      - window:
          table: by_hour
          fixed: 1 hour
          by: [sensor]
          aggregate: {{readings: count(*)}}
"""
)
_WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock'
"""
_TIMEOUT_S = 120.0


def _readings(world: DriverWorld, first: int, count: int) -> list[Sent]:
    """Good ones, a minute apart, each tenth of them twice."""
    return [
        sent(
            world.contract,
            event_id=f"n{number}",
            amount=number % 100,
            at=NOON + dt.timedelta(minutes=number),
            fate="duplicate" if repeat else "committed",
        )
        for number in range(first, first + count)
        for repeat in range(1 + (number % 10 == 0))
    ]


@pytest.mark.parametrize("command", ["restore", "offsets"])
def test_a_driver_killed_while_a_command_waits_for_it_leaves_nothing_of_its_batch(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str, command: str
) -> None:
    """It is killed inside of its publish, and once more in its first batch after."""
    share_fetched(tmp_path)
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn, partitions=1)
    world.write_pipeline(_FIRST)
    variables = {
        KAFKA_VARIABLE: kafka_bootstrap,
        HOME_DSN_VARIABLE: home_dsn,
        STATE_DIRECTORY_VARIABLE: str(tmp_path),
    }
    reason = ("--reason", "a test")

    def run(*arguments: str) -> str:
        return run_command(*arguments, *reason, variables=variables)

    world.topic.send(_readings(world, 0, 40))
    world.run_to_the_end(batch=20)
    kept = len(world.ledger())
    if command == "restore":
        run("snapshot", "take", "readings", "amid")
    world.topic.send(_readings(world, 40, 60))
    with (
        world.driver(batch=20, fault="before:decision_committed:2:SIGSTOP") as driver,
        ThreadPoolExecutor(1) as pool,
    ):
        driver.wait_until_stopped()
        batches = len(world.ledger())
        acting = pool.submit(
            run,
            *{
                "restore": ("restore", "readings", "amid"),
                "offsets": (
                    *("offsets", "reset", "readings"),
                    *("--to-offset", f"{world.topic.name}:0=30"),
                ),
            }[command],
        )
        _await(lambda: acting.done() or world.value(_WAITING) == 1)
        assert not acting.done(), acting.result()
        driver.send(signal.SIGKILL)
        assert acting.result(_TIMEOUT_S)
    assert len(world.ledger()) == (kept if command == "restore" else batches)
    world.assert_verified()
    with world.driver(batch=20, fault="after:voted:1:SIGKILL") as driver:
        assert driver.wait() == -signal.SIGKILL, driver.text
    world.assert_verified()
    world.run_to_the_end(batch=20)
    world.assert_verified()
    good = [f"n{number}" for number in range(100)]
    rows = world.fetch("SELECT event_id FROM readings")
    assert sorted(good) == sorted(event_id for (event_id,) in rows)
    assert world.value("SELECT sum(readings) FROM by_hour") == len(good)


def _await(is_reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while not is_reached():
        assert time.monotonic() < deadline
        time.sleep(0.05)
