"""A driver that writes at least once: killed, refused, asked; no event is missing."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import psycopg
import pytest

from integration_tests.harness.driver_world import SOURCE, DriverWorld, numbered
from integration_tests.harness.readings import sent
from tallyweir.services.cli.audit.status import status_json
from tallyweir.sinks.faultpoints import FaultPoint
from tallyweir.sinks.postgres import audit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

_PIPELINE = (
    SOURCE
    + """
    guarantee: at_least_once
    outputs:
      - append: {{table: readings}}
"""
)
_TWO_OUTPUTS = (
    _PIPELINE
    + """
      - append: {{table: amounts, columns: [amount], where: amount > 4}}
"""
)

_POINTS = [
    FaultPoint.PLANNED,
    FaultPoint.ROWS_STAGED,
    FaultPoint.VOTED,
    FaultPoint.DECISION_COMMITTED,
    FaultPoint.SEALED,
]


def _positions(world: DriverWorld, table: str = "readings") -> Counter[tuple[int, int]]:
    rows = world.fetch(f"SELECT kafka_partition, kafka_offset FROM {table}")
    return Counter((partition, offset) for partition, offset in rows)


def _checks(world: DriverWorld) -> tuple[audit.Receipt, dict[str, audit.Check]]:
    with psycopg.connect(world.home_dsn) as connection:
        receipt = audit.verify(connection, "readings")
    return receipt, {check.name: check for check in receipt.checks}


@pytest.mark.long
def test_a_driver_killed_at_every_point_loses_nothing_and_repeats_what_it_wrote(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """Whatever was staged and not published is written again by the next driver.

    Also what a producer sends twice is there twice; the ledger counts every event once.
    """
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.write_pipeline(_PIPELINE)
    everything = world.topic.send([*numbered(world, 0, 1_200), *numbered(world, 0, 10)])
    before: Counter[tuple[int, int]] = Counter()
    for point in _POINTS:
        fault = f"after:{point.value}:2:SIGKILL"
        with world.driver(batch=100, fault=fault) as driver:
            assert driver.wait() == -signal.SIGKILL, driver.text
        assert before < (before := _positions(world)), point
        receipt, _ = _checks(world)
        assert receipt.is_verified, (point, receipt.failed)
    last = world.run_to_the_end()

    found = _positions(world)
    assert set(everything) == set(found)
    repeated = found.total() - len(everything)
    # The batches that were killed between staging and the decision, of two partitions.
    assert 200 <= repeated <= 500, repeated
    world.assert_conserved(everything)
    receipt, checks = _checks(world)
    assert receipt.is_verified, receipt.failed
    assert repeated == checks["repeated_rows"].checked
    assert {"at_least_once"} == {batch["guarantee"] for batch in world.ledger()}
    assert '"guarantee": "at_least_once"' in last.text

    with psycopg.connect(world.home_dsn) as connection:
        status = audit.read_status(connection, "readings")
        assert "at_least_once" == status_json(status, None)["guarantee"]
        twice = world.value(
            "SELECT event_id FROM readings GROUP BY event_id, kafka_offset "
            "HAVING count(*) = 2 LIMIT 1"
        )
        found_of = audit.explain(connection, "readings", twice, lambda _key, _id: ())
    told = "\n".join(audit.narrate(found_of, lambda _payload: None))
    assert "Its row appears 2 times." in told
    assert "writes at_least_once" in told


def test_rows_that_a_table_refuses_become_dead_letters_of_all_outputs(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """The task finds them by itself and leaves nothing of them, or twice of others."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.write_pipeline(_TWO_OUTPUTS)
    world.execute(
        "CREATE TABLE amounts (amount integer CHECK (amount <> 13), kafka_topic text, "
        "kafka_partition integer, kafka_offset bigint)"
    )
    good = [
        sent(world.contract, event_id=f"g{n}", amount=n % 10, partition=n % 2)
        for n in range(300)
    ]
    refused = "REJECTED_BY_POSTGRES"
    bad = [
        sent(world.contract, event_id=f"b{n}", amount=13, partition=n % 2, fate=refused)
        for n in range(4)
    ]
    everything = world.topic.send([*good, *bad])
    world.run_to_the_end()

    world.assert_fates(everything)
    large = world.fetch(
        "SELECT kafka_partition, kafka_offset FROM readings WHERE amount > 4"
    )
    assert 150 == len(large)
    assert Counter(large) == _positions(world, "amounts")
    # Its condition is not true of the event that the row is said to be of now.
    world.execute("UPDATE amounts SET kafka_offset = 10 WHERE kafka_offset = 9")
    receipt, checks = _checks(world)
    assert (checks["append_outputs"],) == receipt.failed
    (batch,) = world.ledger()
    assert 0 == batch["restagings"]
    ((detail,),) = world.fetch("SELECT DISTINCT detail FROM tallyweir.dead_letter")
    assert "amounts_amount_check" in detail
