"""A driver reads erased events again, as repeats or by offset, and keeps none."""

from __future__ import annotations

import signal
from pathlib import Path

import psycopg
import pytest

from integration_tests.harness.driver_world import SOURCE, DriverWorld, numbered
from integration_tests.harness.readings import NOON, Sent, sent
from integration_tests.harness.whole_database import places_of
from tallyweir.services.operate.id_fingerprints import fingerprints_of
from tallyweir.sinks.postgres import steering
from tallyweir.sinks.postgres.audit import verify

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_PIPELINE = (
    SOURCE
    + """
    validate:
      TOO_MUCH: amount < 1000
    filter: amount <> -7
    outputs:
      - append: {{table: readings}}
      - outbox: {{topic: alarms, key: sensor, where: "amount > 90"}}
      - window:
          table: by_sensor
          fixed: 1 hour
          by: [sensor]
          aggregate: {{readings: count(*)}}
"""
)
_PERSON = "erased-person"


@pytest.mark.long
def test_what_a_producer_sends_again_leaves_nothing(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """Not as a result, a duplicate, a conflict, a dead letter or a filtered event.

    The driver works all the time: the erasure fences it, and it goes on by itself.
    """
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.write_pipeline(_PIPELINE)
    contract = world.contract

    def person(**fields: object) -> Sent:
        return sent(contract, event_id=_PERSON, **fields)  # type: ignore[arg-type]

    everything = world.topic.send(
        [
            *numbered(world, 0, 60),
            person(amount=95),
            person(amount=95, partition=1),
            person(amount=96, partition=1),
        ]
    )
    with world.driver(batch=40) as driver:
        world.await_read(len(everything))
        assert "public.readings" in places_of(home_dsn, _PERSON)
        _erase(world)
        assert not places_of(home_dsn, _PERSON)
        again = [
            *numbered(world, 60, 40),
            person(amount=95),
            person(amount=96, partition=1),
            person(amount=5000),
            person(amount=-7, partition=1),
            person(amount=1, at=NOON.replace(year=1999)),
            person(amount=1, at=NOON.replace(year=2999)),
            *numbered(world, 50, 10),
        ]
        everything |= world.topic.send(again)
        world.await_read(len(everything))
        driver.send(signal.SIGTERM)
        assert driver.wait() == 0, driver.text
    assert _PERSON not in driver.text
    assert not places_of(home_dsn, _PERSON)
    world.assert_verified()
    assert world.value("SELECT count(*) FROM readings") == 100
    erased = (
        "SELECT count(*) FROM tallyweir.filtered_event "
        "WHERE condition = 'erased' AND event_id IS NULL"
    )
    assert world.value(erased) == 6
    # Its time was not looked at either.
    watermark = world.value("SELECT watermark FROM tallyweir.pipeline")
    assert watermark.year == NOON.year


def test_offsets_that_are_read_again_bring_nothing_back(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """By their positions, where no ID is known; the home is as a restore left it."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn, partitions=1)
    records = [
        *numbered(world, 0, 10, partitions=[0]),
        Sent(value=_PERSON.encode(), fate="BAD_MAGIC"),
        sent(world.contract, event_id=_PERSON, amount=5),
    ]
    everything = world.topic.send(records)
    world.run_to_the_end()
    world.assert_fates(everything)
    world.execute(
        "UPDATE tallyweir.dead_letter SET event_id = 'letter'",
    )
    _erase(world, _PERSON, "letter")
    assert not places_of(home_dsn, _PERSON)
    with psycopg.connect(world.home_dsn) as home:
        tombs = steering.read_tombs(home, "readings")
    _forget_all(world)
    request = steering.ErasureRequest(
        act=_act(),
        receipt=steering.Tombs(fingerprints=(), positions=tombs.positions),
    )
    with psycopg.connect(world.home_dsn) as home:
        steering.erase(home, request, _fingerprints)
    world.run_to_the_end()
    assert world.value("SELECT count(*) FROM readings") == 10
    assert not places_of(home_dsn, _PERSON)
    with psycopg.connect(world.home_dsn) as home:
        assert verify(home, "readings").is_verified


def _forget_all(world: DriverWorld) -> None:
    """Leave the home as it was before the first batch, but for the claims."""
    world.execute(
        "TRUNCATE readings, tallyweir.batch, tallyweir.erased_id, "
        "tallyweir.erased_row, tallyweir.seen_id_run, tallyweir.dead_letter, "
        "tallyweir.duplicate_event, tallyweir.filtered_event CASCADE",
        "DELETE FROM tallyweir.partition_progress",
        "UPDATE tallyweir.pipeline SET last_sequence = 0, watermark = NULL",
    )


def _act() -> steering.ActRequest:
    return steering.ActRequest(pipeline="readings", kind="erase", reason="request 4711")


def _fingerprints(key: bytes, event_id: str) -> tuple[bytes, ...]:
    return fingerprints_of(key, event_id, None)


def _erase(world: DriverWorld, *ids: str) -> None:
    request = steering.ErasureRequest(act=_act(), ids=ids or (_PERSON,))
    with psycopg.connect(world.home_dsn) as home:
        steering.erase(home, request, _fingerprints)
