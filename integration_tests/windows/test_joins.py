"""Joins through a real driver: the example of docs/joins.md, kills, and one topic."""

from __future__ import annotations

import datetime as dt
import signal
from collections import Counter
from pathlib import Path

import psycopg
import pytest

from integration_tests.harness.driver_world import SOURCE, DriverWorld
from integration_tests.harness.readings import NOON, Sent, sent
from tallyweir.sinks.faultpoints import FaultPoint
from tallyweir.sinks.postgres.audit import read_key

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

_JOIN = (
    SOURCE.replace("1 hour", "5 s")
    + """
    outputs:
      - append: {{table: readings}}
      - join:
          table: pairs
          on: [sensor]
          within: {{before: 3 s, after: 8 s}}
          left: {{where: grade = 'LOW', select: {{low: event_id, low_at: at}}}}
          right: {{where: grade = 'HIGH', select: {{high: event_id, divisor: divisor}}}}
          unmatched: both
"""
)
_BEFORE_S, _AFTER_S = 3, 8
_EVENTS = 400
_SENSORS = 5
#: In a batch with results and state; DECISION_COMMITTED is seen by the next driver.
_POINTS = [
    FaultPoint.ROWS_STAGED,
    FaultPoint.KEYS_STAGED,
    FaultPoint.KEYS_VOTED,
    FaultPoint.DECISION_COMMITTED,
]


def _grade(number: int) -> str:
    # Runs of both grades, so that some events have many partners and some have none.
    return "LOW" if number % 7 < 3 or number % 50 > 40 else "HIGH"


def _readings(world: DriverWorld) -> list[Sent]:
    """One a second; each tenth arrives five places after its time, still in time."""
    order = sorted(range(_EVENTS), key=lambda n: n + (4.5 if n % 10 == 0 else 0))
    return [
        sent(
            world.contract,
            partition=number % 2,
            event_id=f"n{number}",
            sensor=f"s{number % _SENSORS}",
            grade=_grade(number),
            divisor=number + 1,
            at=NOON + dt.timedelta(seconds=number),
        )
        for number in order
    ]


def _expected() -> Counter[tuple[str | None, str | None, int | None]]:
    """Work out by the simplest means which rows there must be in the end."""
    rows: list[tuple[str | None, str | None, int | None]] = []
    matched = set()
    for low in range(_EVENTS):
        for high in range(_EVENTS):
            if (
                (_grade(low), _grade(high)) == ("LOW", "HIGH")
                and low % _SENSORS == high % _SENSORS
                and -_BEFORE_S <= high - low <= _AFTER_S
            ):
                matched |= {low, high}
                rows.append((f"n{low}", f"n{high}", high + 1))
    for number in set(range(_EVENTS)) - matched:
        name = f"n{number}"
        alone = (name, None, None)
        rows.append(alone if _grade(number) == "LOW" else (None, name, number + 1))
    return Counter(rows)


@pytest.mark.long
def test_pairs_are_those_of_the_model_though_drivers_are_killed(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """Each once, and whoever has had no partner is alone once, when that is certain."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.write_pipeline(_JOIN)
    world.topic.send(_readings(world))
    for point in _POINTS:
        with world.driver(batch=40, fault=f"after:{point.value}:2:SIGKILL") as driver:
            assert driver.wait() == -signal.SIGKILL, driver.text
        world.assert_verified()
    world.run_to_the_end(batch=40)
    # One far event lets the watermark pass everybody who waits.
    far = NOON + dt.timedelta(hours=1)
    ends = [
        sent(world.contract, partition=n, event_id=f"e{n}", sensor="end", at=far)
        for n in range(2)
    ]
    world.topic.send(ends)
    world.run_to_the_end(batch=40)
    found = Counter(
        (low, high, divisor)
        for low, high, divisor in world.fetch("SELECT low, high, divisor FROM pairs")
    )
    assert _expected() == found
    assert any(low is None for low, _, _ in found), "every right event has a partner"
    assert any(high is None for _, high, _ in found), "every left event has a partner"
    # Whoever waits is the far ones only, and they are in nobody's row.
    assert ["end"] == [
        key
        for (key,) in world.fetch("SELECT key::json ->> 0 FROM tallyweir.keyed_state")
    ]
    assert _EVENTS + 2 == world.value("SELECT count(*) FROM readings")
    world.assert_verified()


@pytest.mark.long
def test_a_repeat_makes_no_second_pair(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """It is dropped by its ID before it comes to the join."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn, partitions=1)
    world.write_pipeline(_JOIN)
    low = sent(world.contract, event_id="low", grade="LOW", at=NOON)
    high = sent(world.contract, event_id="high", grade="HIGH", at=NOON)
    world.topic.send([low, high])
    world.run_to_the_end()
    world.topic.send([low, high, low])
    world.run_to_the_end()
    assert [("low", "high")] == world.fetch("SELECT low, high FROM pairs")
    world.assert_verified()


@pytest.mark.long
def test_who_waits_for_a_key_can_be_seen(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """The events with their columns, and the moment at which they leave."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn, partitions=1)
    world.write_pipeline(_JOIN)
    world.topic.send([sent(world.contract, event_id="low", grade="LOW", at=NOON)])
    world.run_to_the_end()
    with psycopg.connect(world.home_dsn) as connection:
        report = read_key(connection, "readings", "s1")
    ((state,), (timer,)) = (report.state, report.timers)
    assert "waiting" == state["name"]
    assert '"low": "low"' in str(state["value"]).replace('":"', '": "')
    leaves = NOON + dt.timedelta(seconds=_AFTER_S, microseconds=1)
    assert leaves == timer["fires_at"]
