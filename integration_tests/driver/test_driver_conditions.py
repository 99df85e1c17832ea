"""``filter`` and ``where`` through a real driver: who takes an event, and why."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from integration_tests.harness.driver_world import SOURCE, DriverWorld
from integration_tests.harness.readings import NOON, sent
from tallyweir.sinks.postgres.audit import explain, narrate, verify

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_BRANCHES = (
    SOURCE
    + """
    filter: "amount / divisor < 100"
    outputs:
      - append: {{table: readings, where: "grade = 'HIGH' OR amount > 50"}}
      - append: {{table: high, where: "grade = 'HIGH'", branches: 2}}
      - outbox: {{topic: alarms, key: sensor, where: "amount > 50"}}
      - window:
          table: by_sensor
          fixed: 1 hour
          by: [sensor]
          aggregate: {{readings: count(*), total: sum(amount)}}
          where: amount < 0
"""
)


def test_an_event_goes_to_the_outputs_that_want_it(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """One is enough to commit it; none filters it, and null is not true."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.write_pipeline(_BRANCHES)
    contract = world.contract
    records = [
        sent(contract, event_id="high", grade="HIGH"),
        sent(contract, event_id="much", amount=60, partition=1),
        sent(contract, event_id="both", amount=70, grade="HIGH"),
        sent(contract, event_id="small", amount=2, fate="filtered"),
        sent(contract, event_id="huge", amount=100, fate="filtered", partition=1),
        sent(contract, event_id="none", amount=99, divisor=0, fate="EXPRESSION_FAILED"),
        sent(contract, event_id="high", grade="HIGH", fate="duplicate", partition=1),
        sent(contract, event_id=None, amount=100, fate="MISSING_ID"),
        sent(contract, event_id="cold", amount=-3, grade="HIGH"),
    ]
    everything = world.topic.send(records)
    world.run_to_the_end()

    assert ["both", "cold", "high", "much"] == _ids(world, "readings")
    assert ["both", "cold", "high"] == _ids(world, "high")
    assert [("both",), ("much",)] == world.fetch(
        "SELECT event_id FROM tallyweir.outbox ORDER BY event_id"
    )
    assert [("s1", 1, -3)] == world.fetch(
        "SELECT sensor, readings, total FROM by_sensor"
    )
    world.assert_fates(everything)
    assert "was filtered in batch" in _why(world, "small")
    assert (
        "by: (grade = 'HIGH' OR amount > 50) OR (grade = 'HIGH') OR (amount > 50) OR "
        "(amount < 0), which is not true of it" in _why(world, "small")
    )
    assert "by: amount / divisor < 100, which" in _why(world, "huge")
    assert (
        "The filter, amount / divisor < 100, has no value: "
        "amount / divisor divides by zero." in _why(world, "none")
    )

    _assert_forgeries_are_found(world)


def _assert_forgeries_are_found(world: DriverWorld) -> None:
    """What an output took is in the ledger, so the audit need not trust its rows."""
    world.execute(
        "CREATE TABLE kept AS TABLE readings",
        "CREATE TABLE kept_aside AS TABLE tallyweir.filtered_event",
    )
    for forgery in (
        "DELETE FROM readings WHERE event_id = 'both'",
        "UPDATE readings SET kafka_offset = 5 WHERE event_id = 'both'",
        "INSERT INTO readings SELECT * FROM readings WHERE event_id = 'both'",
        "DELETE FROM tallyweir.filtered_event WHERE event_id = 'small'",
    ):
        world.execute(forgery)
        with psycopg.connect(world.home_dsn) as connection:
            assert not verify(connection, "readings").is_verified, forgery
        world.execute(
            "TRUNCATE readings, tallyweir.filtered_event",
            "INSERT INTO readings TABLE kept",
            "INSERT INTO tallyweir.filtered_event TABLE kept_aside",
        )
        world.assert_verified()


_FILTERED = (
    SOURCE
    + """
    filter: amount > 0
    outputs:
      - append: {{table: readings}}
"""
)


@pytest.mark.long
def test_the_order_of_copies_does_not_matter_to_a_filter(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """A filtered event claims no ID, so the copy that passes counts either way."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn, partitions=1)
    world.write_pipeline(_FILTERED)
    contract = world.contract
    everything = world.topic.send(
        [
            sent(contract, event_id="good first", amount=5),
            sent(contract, event_id="good last", amount=0, fate="filtered"),
            sent(contract, event_id="good first", amount=0, fate="filtered"),
            sent(contract, event_id="good last", amount=5),
            # The same again, in another batch.
            sent(contract, event_id="good first", amount=0, fate="filtered"),
            sent(contract, event_id="good first", amount=5, fate="duplicate"),
        ]
    )
    world.run_to_the_end(batch=4)
    world.assert_fates(everything)


@pytest.mark.long
def test_an_event_is_late_when_every_output_that_wants_it_says_so(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """The append output, which is never too late, does not want it."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn, partitions=1)
    world.write_pipeline(
        SOURCE
        + """
    outputs:
      - append: {{table: readings, where: amount > 10}}
      - window:
          table: by_sensor
          fixed: 1 hour
          by: [sensor]
          aggregate: {{readings: count(*)}}
          late: side_table
"""
    )
    late = NOON - timedelta(hours=9)
    world.topic.send([sent(world.contract, event_id="first", amount=11)])
    world.run_to_the_end()
    world.topic.send(
        [
            sent(world.contract, event_id="late", at=late),
            sent(world.contract, event_id="taken", at=late, amount=12),
        ]
    )
    world.run_to_the_end()
    assert ["first", "taken"] == _ids(world, "readings")
    assert [(2, 1, 0)] == world.fetch(
        "SELECT sum(committed), sum(late), sum(filtered) FROM tallyweir.batch_partition"
    )
    world.assert_verified()


def _ids(world: DriverWorld, table: str) -> list[str]:
    return [row[0] for row in world.fetch(f"SELECT event_id FROM {table} ORDER BY 1")]


def _why(world: DriverWorld, event_id: str) -> str:
    with psycopg.connect(world.home_dsn) as connection:
        explanation = explain(connection, "readings", event_id, lambda *_: [])
    return "\n".join(narrate(explanation, lambda _: None))
