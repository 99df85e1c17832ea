"""A user's own table that refuses rows: they become dead letters, the others count."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration_tests.harness.driver_world import SOURCE, DriverWorld
from integration_tests.harness.readings import Sent, reading, sent
from tallyweir.schemas.codec import encode

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_PIPELINE = (
    SOURCE
    + """
    outputs:
      - append: {{table: readings}}
      - window:
          table: readings_by_hour
          fixed: 1 hour
          aggregate: {{readings: count(*), total: sum(amount)}}
"""
)

_OWN_TABLE = """
    CREATE TABLE readings (
        id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        sensor          text NOT NULL CHECK (sensor <> 'forbidden'),
        event_id        text NOT NULL,
        at              timestamptz NOT NULL,
        amount          smallint NOT NULL,
        site            text,
        grade           text NOT NULL,
        divisor         integer NOT NULL,
        kafka_topic     text NOT NULL,
        kafka_partition integer NOT NULL,
        kafka_offset    bigint NOT NULL,
        UNIQUE (divisor, grade) DEFERRABLE INITIALLY DEFERRED
    )
"""


@pytest.mark.long
def test_rows_that_the_users_table_refuses_become_dead_letters(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """A check, a narrow type and a deferred key each cost their own rows only.

    The windows leave out what the table refused, and the repeat of a refused event is
    refused with it.
    """
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.write_pipeline(_PIPELINE)
    world.execute(_OWN_TABLE)
    refused = "REJECTED_BY_POSTGRES"
    good = [
        sent(
            world.contract,
            event_id=f"g{number}",
            divisor=number,
            amount=number,
            partition=number % 2,
        )
        for number in range(100)
    ]

    def bad(event_id: str, **fields: object) -> dict[str, object]:
        return {"event_id": event_id, "fate": refused, **fields}

    broken = [
        bad("check", sensor="forbidden", divisor=1_000),
        bad("check", sensor="forbidden", divisor=1_000),
        bad("check", sensor="forbidden", divisor=1_000, partition=1),
        bad("wide", amount=40_000, divisor=1_001),
        bad("wide below", amount=-40_000, divisor=1_002, partition=1),
    ]
    records = [sent(world.contract, **fields) for fields in broken]  # type: ignore[arg-type]
    everything = world.topic.send([*good[:50], *records, *good[50:]])
    world.run_to_the_end()

    world.assert_fates(everything)
    (batch,) = world.ledger()
    # All refused rows are found in one search; a copy in another task takes the place
    # of the one that was refused, and is refused in turn.
    assert batch["restagings"] in {1, 2}
    ((readings, total),) = world.fetch("SELECT readings, total FROM readings_by_hour")
    assert (100, sum(range(100))) == (readings, total)
    details = world.fetch(
        "SELECT DISTINCT event_id, detail FROM tallyweir.dead_letter ORDER BY 1"
    )
    assert ["check", "wide", "wide below"] == [event_id for event_id, _ in details]
    assert "readings_sensor_check" in details[0][1]
    assert "smallint" in details[1][1]

    # The same with a key that only the end of the transaction checks.
    clash = world.topic.send(
        [
            sent(world.contract, event_id="taken", divisor=7, fate=refused),
            sent(world.contract, event_id="free", divisor=2_000),
        ]
    )
    world.run_to_the_end()
    world.assert_fates({**everything, **clash})
    # A repaired event may come again under its ID: a dead letter claimed none.
    repaired = world.topic.send([sent(world.contract, event_id="taken", divisor=2_001)])
    world.run_to_the_end()
    world.assert_fates({**everything, **clash, **repaired})


@pytest.mark.long
def test_only_the_refused_one_of_two_equal_payloads_dies(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """Events with IDs of their own stay apart, although their payloads are equal."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.write_pipeline(
        _PIPELINE.replace("event_id: event_id", "event_id: header:event-id")
    )
    world.execute(_OWN_TABLE)
    value = encode(world.contract, reading())
    everything = world.topic.send(
        [
            Sent(value=value, headers=[("event-id", b"first")]),
            Sent(
                value=value,
                headers=[("event-id", b"second")],
                fate="REJECTED_BY_POSTGRES",
            ),
        ]
    )
    world.run_to_the_end()
    world.assert_fates(everything)
