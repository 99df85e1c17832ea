"""Keyed state and timers under a driver that is killed at every point."""

from __future__ import annotations

import datetime as dt
import signal
from pathlib import Path
from typing import Any

import pytest

from integration_tests.harness.driver_world import DriverWorld
from integration_tests.harness.keyed_pipeline import (
    KEYED_PIPELINE,
    write_python_pipeline,
)
from integration_tests.harness.readings import NOON, Sent, sent
from tallyweir.sinks.faultpoints import FaultPoint

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

#: What a batch of one database passes.
POINTS = [
    FaultPoint.PLANNED,
    FaultPoint.ROWS_STAGED,
    FaultPoint.VOTED,
    FaultPoint.KEYS_STAGED,
    FaultPoint.KEYS_VOTED,
    FaultPoint.DECISION_COMMITTED,
    FaultPoint.SEALED,
]
_SENSORS = 7
_EVENTS = 500


def _readings(world: DriverWorld) -> list[Sent]:
    """Events in order for each sensor, with silences; each sensor has its partition."""
    found = []
    for number in range(_EVENTS):
        sensor = number % _SENSORS
        # Every hundred events the clock leaps by more than the alarm's ten minutes.
        at = NOON + dt.timedelta(seconds=number, minutes=15 * (number // 100))
        found.append(
            sent(
                world.contract,
                partition=sensor % 2,
                event_id=f"n{number}",
                sensor=f"s{sensor}",
                amount=number,
                at=at,
            )
        )
    return found


def _expected() -> dict[str, list[tuple[Any, ...]]]:
    """Work out by the simplest means what the function must have returned."""
    rows: dict[str, list[tuple[Any, ...]]] = {}
    total: dict[str, int] = {}
    for number in range(_EVENTS):
        sensor = f"s{number % _SENSORS}"
        total[sensor] = total.get(sensor, 0) + number
        rows.setdefault(sensor, []).append(("event", number, total[sensor]))
    return rows


def _found(world: DriverWorld) -> dict[str, list[tuple[Any, ...]]]:
    rows: dict[str, list[tuple[Any, ...]]] = {}
    for sensor, *row in world.fetch(
        "SELECT sensor, what, number, total FROM totals "
        "ORDER BY sensor, tallyweir_sequence, tallyweir_ordinal"
    ):
        rows.setdefault(sensor, []).append(tuple(row))
    return rows


def _events(rows: dict[str, list[tuple[Any, ...]]]) -> dict[str, list[tuple[Any, ...]]]:
    return {key: [r for r in of if r[0] == "event"] for key, of in rows.items()}


def _silences(world: DriverWorld) -> dict[str, list[int]]:
    return {
        key: sorted(row[1] for row in of if row[0] == "silent")
        for key, of in _found(world).items()
    }


def _check(world: DriverWorld) -> None:
    """Hold rows, state and timers against each other and against the events."""
    assert _expected() == _events(_found(world))
    totals = {key: of[-1][2] for key, of in _events(_found(world)).items()}
    stored = dict(
        world.fetch(
            "SELECT key::json ->> 0, (value #>> '{}')::bigint "
            "FROM tallyweir.keyed_state WHERE name = 'total'"
        )
    )
    assert totals == stored
    seen = world.value(
        "SELECT sum((value #>> '{}')::bigint) FROM tallyweir.keyed_state "
        "WHERE name = 'seen'"
    )
    assert _EVENTS == seen
    world.assert_verified()


@pytest.mark.long
def test_state_and_timers_survive_a_kill_at_every_point(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """Each restart goes on from what the last decided batch left, and nothing else."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    write_python_pipeline(world, KEYED_PIPELINE)
    world.topic.send(_readings(world))
    for point in POINTS:
        with world.driver(batch=40, fault=f"after:{point.value}:2:SIGKILL") as driver:
            assert driver.wait() == -signal.SIGKILL, driver.text
        world.assert_verified()
    world.run_to_the_end(batch=40)
    _check(world)
    # The last hundred's silence is yet to come; every other timer fired once.
    assert [("event", "silent 4", _SENSORS)] == world.fetch(
        "SELECT clock, name, count(*) FROM tallyweir.keyed_timer GROUP BY 1, 2"
    )
    assert {f"s{n}": [0, 1, 2, 3] for n in range(_SENSORS)} == _silences(world)
    ticks = world.value(
        "SELECT count(*) FROM tallyweir.batch WHERE spark_batch_id IS NULL"
    )
    assert ticks, "no tick was ever needed, so none was tried"


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(FaultPoint.PLANNED, marks=pytest.mark.long),
        pytest.param(FaultPoint.KEYS_STAGED, marks=pytest.mark.long),
        pytest.param(FaultPoint.KEYS_VOTED, marks=pytest.mark.long),
        FaultPoint.DECISION_COMMITTED,
    ],
)
def test_a_tick_killed_at_any_point_counts_once(
    point: FaultPoint, tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """What was due is due for the next driver, or has had its effect."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    write_python_pipeline(world, KEYED_PIPELINE)
    world.topic.send(_readings(world))
    # One batch has everything, so the second time is the tick's.
    with world.driver(fault=f"after:{point.value}:2:SIGKILL") as driver:
        assert driver.wait() == -signal.SIGKILL, driver.text
    is_decided = point is FaultPoint.DECISION_COMMITTED
    kinds = world.fetch(
        "SELECT spark_batch_id IS NULL FROM tallyweir.batch ORDER BY sequence"
    )
    assert [(False,), (True,)][: 1 + is_decided] == kinds
    world.run_to_the_end()
    _check(world)
    assert 2 == len(world.ledger())
    assert {f"s{n}": [0, 1, 2, 3] for n in range(_SENSORS)} == _silences(world)
