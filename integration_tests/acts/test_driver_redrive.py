"""Dead letters that a new contract has made readable: sent again, each counts once."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration_tests.harness.driver_world import DriverWorld
from integration_tests.harness.readings import READING, Sent, reading, write_contract
from tallyweir.schemas.codec import encode
from tallyweir.services.operate.redrive.redriver import redrive
from tallyweir.sinks.faultpoints import RedrivePoint, arm, disarm_all
from tallyweir.sinks.postgres import audit
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.steering import RedriveSelection

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class _KilledError(Exception):
    """Nobody catches it, so the process would be gone."""


@pytest.mark.long
def test_what_was_unreadable_counts_once_after_its_contract_came(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """Also when the one who sent it died before he noted it, and somebody repeats it.

    Nothing is told to the driver: it reads the copies like anything else.
    """
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    fields = READING["fields"]
    assert isinstance(fields, list)
    newer = {"name": "note", "type": ["null", "string"], "default": None}
    (tmp_path / "newer").mkdir()
    contract = write_contract(
        tmp_path / "newer" / "reading.v2.avsc", {**READING, "fields": [*fields, newer]}
    )
    world.topic.send(
        [
            Sent(
                value=encode(
                    contract, {**reading(event_id=f"n{number}"), "note": "new"}
                ),
                partition=number % 2,
            )
            for number in range(10)
        ]
    )
    # A call that has brought nothing else says so, and how to see why.
    driver = world.run_to_the_end(code=1)
    assert "NO RESULTS: all of 10 records are dead letters" in driver.text
    assert "tallyweir dead-letters list readings shows why" in driver.text
    reasons = world.fetch("SELECT reason, event_id FROM tallyweir.dead_letter")
    assert [("UNKNOWN_SCHEMA", None)] * 10 == reasons

    (tmp_path / "newer" / "reading.v2.avsc").rename(tmp_path / "reading.v2.avsc")
    arm(RedrivePoint.SENT, _kill)
    with pytest.raises(_KilledError):
        _redrive(world, "UNKNOWN_SCHEMA")
    disarm_all()
    assert _redrive(world, "UNKNOWN_SCHEMA") == 10
    assert _redrive(world, "UNKNOWN_SCHEMA") == 0
    world.run_to_the_end()

    ids = world.fetch("SELECT event_id FROM readings ORDER BY 1")
    assert ids == [(f"n{number}",) for number in range(10)]
    assert world.value("SELECT count(*) FROM tallyweir.duplicate_event") == 10
    with connect(world.home_dsn, application_name="test") as home:
        receipt = audit.verify(home, "readings")
        assert not receipt.failed
        found = audit.explain(home, "readings", "n4", lambda _key, _id: ())
        told = list(audit.narrate(found, lambda _payload: None))
    assert "became a dead letter" in told[0]
    assert "sent again" in told[0]
    assert "was committed to readings" in told[1]
    assert "was dropped as a duplicate" in told[2]


def _redrive(world: DriverWorld, group: str) -> int:
    with connect(world.home_dsn, application_name="test") as home:
        return redrive(
            home,
            world.topic.bootstrap,
            RedriveSelection(pipeline="readings", group=group),
            reason="reading.v2 is known now",
        ).sent


def _kill() -> None:
    raise _KilledError
