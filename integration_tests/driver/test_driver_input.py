"""Everything that a topic can hold, good and hostile, through a real driver."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from integration_tests.harness.driver_world import (
    PIPELINE,
    SOURCE,
    DriverWorld,
    numbered,
)
from integration_tests.harness.readings import (
    NOON,
    Sent,
    at_microseconds,
    reading,
    sent,
)
from tallyweir.schemas.codec import encode
from tallyweir.schemas.contract import Contract
from tallyweir.schemas.formats.framing import frame
from tallyweir.spark_jobs.engine.program import ALL_DIED

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_PIPELINE = (
    SOURCE
    + """
    deduplicate: {{horizon: 7 days}}
    validate:
      NEGATIVE_AMOUNT: "amount >= 0"
      BAD_RATIO: "try_divide(amount, divisor) >= 0"
      TOO_MUCH: "amount * 1000 >= 0"
    outputs:
      - append: {{table: readings}}
      - window:
          table: readings_by_hour
          fixed: 1 hour
          by: [grade]
          aggregate: {{readings: count(*), total: sum(amount), worst: max(amount)}}
"""
)

_DAYS_IN_NEW_YORK = (
    SOURCE.replace("1 hour", "36500 days")
    + """
    deduplicate: {{horizon: 36500 days}}
    outputs:
      - append: {{table: readings}}
      - window:
          table: readings_by_day
          fixed: 1 day
          time_zone: America/New_York
          aggregate: {{readings: count(*)}}
"""
)

#: A zig-zag varint that says: two gigabytes follow.
_TWO_GIGABYTES = b"\xfe\xff\xff\xff\x0f"
#: What Go and .NET send of a moment that nobody has set.
_ZERO_TIME = dt.datetime(1, 1, 1, tzinfo=dt.UTC)


def _undecodable(contract: Contract) -> list[Sent]:
    """Every way in which a payload can fail to be an event."""
    good = encode(contract, reading(event_id="never", sensor="AB"))
    body = good[5:]
    other_id = contract.schema_id % 1_000 + 1
    return [
        Sent(value=None, fate="EMPTY_PAYLOAD", key=b"a tombstone"),
        Sent(value=b"", fate="EMPTY_PAYLOAD"),
        Sent(value=good[:3], fate="MALFORMED"),
        Sent(value=good[:5], fate="MALFORMED"),
        Sent(value=good[:-1], fate="MALFORMED"),
        Sent(value=b"\x01" + good[1:], fate="BAD_MAGIC"),
        Sent(value=b'{"event_id": "json"}', fate="BAD_MAGIC"),
        Sent(value=frame(other_id, body), fate="UNKNOWN_SCHEMA"),
        Sent(value=good + b"\x00", fate="TRAILING_BYTES"),
        Sent(value=good + good, fate="TRAILING_BYTES"),
        # The enum's index stands before the last byte: -1, and one too many.
        Sent(value=good[:-2] + b"\x01" + good[-1:], fate="MALFORMED"),
        Sent(value=good[:-2] + b"\x04" + good[-1:], fate="MALFORMED"),
        Sent(value=frame(contract.schema_id, _TWO_GIGABYTES), fate="MALFORMED"),
        # A negative length, and a varint that never ends.
        Sent(value=frame(contract.schema_id, b"\x03" + body), fate="MALFORMED"),
        Sent(value=frame(contract.schema_id, b"\xff" * 40), fate="MALFORMED"),
        # Text that is no UTF-8.
        Sent(value=good.replace(b"AB", b"\xff\xfe"), fate="MALFORMED"),
    ]


def _unusable(contract: Contract) -> list[Sent]:
    """Events that decode and still can never become results."""
    year_9999 = dt.datetime(9999, 1, 1, tzinfo=dt.UTC)
    year_5000_before_christ = at_microseconds(
        encode(contract, reading(event_id="stone age")), -220_000_000_000_000_000
    )
    return [
        sent(contract, event_id=None, fate="MISSING_ID"),
        sent(contract, event_id="", fate="MISSING_ID"),
        sent(contract, event_id="x" * 257, fate="ID_TOO_LONG"),
        sent(contract, event_id="untimed", at=None, fate="MISSING_EVENT_TIME"),
        sent(contract, event_id="future", at=year_9999, fate="TIMESTAMP_IN_FUTURE"),
        sent(contract, event_id="zero", at=_ZERO_TIME, fate="TIMESTAMP_TOO_OLD"),
        Sent(value=year_5000_before_christ, fate="MALFORMED"),
        sent(contract, event_id="nul", sensor="a\0b", fate="UNSTORABLE_VALUE"),
        sent(contract, event_id="nul\0", fate="UNSTORABLE_VALUE"),
        sent(contract, event_id="minus", amount=-1, fate="NEGATIVE_AMOUNT"),
        # Null is not true.
        sent(contract, event_id="ratio", divisor=0, fate="BAD_RATIO"),
        # What overflows is no negative number, but none.
        sent(contract, event_id="much", amount=2**31 - 1, fate="EXPRESSION_FAILED"),
        # The first rule that is broken gives the reason.
        sent(contract, event_id="both", amount=-1, divisor=0, fate="NEGATIVE_AMOUNT"),
        # A dead event claims no ID: sent again and repaired, it counts.
        sent(contract, event_id="ratio", divisor=2),
        sent(contract, event_id="x" * 256),
    ]


def test_every_record_meets_its_fate_once(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """Good, repeated, conflicting, broken and expired records are told apart."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.write_pipeline(_PIPELINE)
    contract = world.contract
    days_before = NOON - dt.timedelta(days=3)
    month_before = NOON - dt.timedelta(days=30)
    first = numbered(world, 0, 40)
    hostile = [*_undecodable(contract), *_unusable(contract)]
    again = [
        # At once, and in a later batch.
        sent(contract, event_id="twice", amount=5),
        sent(contract, event_id="twice", amount=5, fate="duplicate"),
        sent(contract, event_id="n0", amount=0, fate="duplicate"),
        sent(contract, event_id="n2", amount=2, partition=1, fate="duplicate"),
        # The same ID with another payload, also where its bucket is another one.
        sent(contract, event_id="twice", amount=6, fate="ID_CONFLICT"),
        sent(contract, event_id="n4", amount=77, fate="ID_CONFLICT"),
        sent(contract, event_id="n4", at=days_before, fate="ID_CONFLICT"),
        sent(contract, event_id="n6", amount=78, partition=1, fate="ID_CONFLICT"),
        sent(contract, event_id="old", at=month_before, fate="expired"),
        sent(contract, event_id="old", at=month_before, fate="expired"),
        sent(contract, event_id="earlier", at=days_before),
    ]
    last = [*numbered(world, 100, 40)]
    everything = world.topic.send([*first, *hostile, *again, *last])
    driver = world.run_to_the_end(batch=40)

    world.assert_fates(everything)
    batches = world.ledger()
    assert len(batches) >= 3, "the input must span batches to test anything"
    _assert_windows_equal_the_rows(world)
    _assert_dead_letters_can_be_replayed(world, everything)
    assert batches[-1]["watermark_after"] == NOON - dt.timedelta(hours=1)
    assert "Traceback" not in driver.text


def _assert_windows_equal_the_rows(world: DriverWorld) -> None:
    windows = world.fetch(
        "SELECT window_start, grade, readings, total, worst FROM readings_by_hour"
    )
    recounted = world.fetch(
        "SELECT date_trunc('hour', at), grade, count(*), sum(amount), max(amount) "
        "FROM readings WHERE at >= '2024-05-01' GROUP BY 1, 2"
    )
    assert sorted(windows) == sorted(recounted)


def _assert_dead_letters_can_be_replayed(
    world: DriverWorld, everything: dict[tuple[int, int], Sent]
) -> None:
    """Each dead letter keeps key and payload to the byte, and says what is wrong."""
    rows = world.fetch(
        "SELECT kafka_partition, kafka_offset, key, payload, detail "
        "FROM tallyweir.dead_letter"
    )
    for partition, offset, key, payload, detail in rows:
        record = everything[partition, offset]
        assert (record.key, record.value) == (key, payload)
        assert detail
        assert "tallyweir_" not in detail, "our own column names mean nothing to users"


def test_a_batch_of_nothing_but_dead_letters_moves_the_offsets(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """All dead is a batch like any other; markers and aborted events are none.

    The topic is empty at the first run: it ends at once and commits nothing.
    """
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn, partitions=1)
    world.run_to_the_end()
    assert [] == world.ledger()
    world.assert_verified()

    dead = world.topic.send([Sent(value=b"no", fate="BAD_MAGIC")] * 10)
    group = [sent(world.contract, event_id=f"t{number}") for number in range(5)]
    aborted = [sent(world.contract, event_id=f"aborted{n}") for n in range(5)]
    committed = world.topic.send_in_transactions(
        [
            (group[:2], True),
            (aborted, False),
            (group[2:], True),
            ([sent(world.contract, event_id="t0", fate="duplicate")], True),
            (aborted[:1], False),
        ]
    )
    world.run_to_the_end(batch=10)

    world.assert_fates({**dead, **committed})
    first, *_ = world.fetch(
        "SELECT read, dead, committed FROM tallyweir.batch_partition ORDER BY sequence"
    )
    assert (10, 10, 0) == first
    # The log ends with a marker and what was aborted: nothing is left to read.
    ((position, span, read),) = world.fetch(
        "SELECT max(until_offset), sum(until_offset - from_offset), sum(read) "
        "FROM tallyweir.batch_partition"
    )
    assert position == world.value(
        "SELECT next_offset FROM tallyweir.partition_progress"
    )
    assert (10 + 12 + 5, 16) == (span, read)


@pytest.mark.long
def test_a_time_that_nobody_has_set_is_a_dead_letter(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """Of it alone neither a window by a zone's clock nor a watermark can be counted.

    The earliest time that counts has both, and the driver goes on behind it.
    """
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn, partitions=1)
    world.write_pipeline(_DAYS_IN_NEW_YORK)
    year_1000 = dt.datetime(1000, 1, 1, tzinfo=dt.UTC)
    year_999 = year_1000 - dt.timedelta(microseconds=1)
    unset = world.topic.send(
        [
            sent(world.contract, event_id=name, at=at, fate="TIMESTAMP_TOO_OLD")
            for name, at in (("go", _ZERO_TIME), ("late", year_999))
        ]
    )
    world.run_to_the_end(code=ALL_DIED)
    assert [None] == [batch["watermark_after"] for batch in world.ledger()]
    earliest = world.topic.send([sent(world.contract, event_id="first", at=year_1000)])
    world.run_to_the_end()
    last = world.topic.send([sent(world.contract, event_id="now")])
    world.run_to_the_end()

    world.assert_fates({**unset, **earliest, **last})
    assert [(1,), (1,)] == world.fetch("SELECT readings FROM readings_by_day")


def test_an_event_behind_the_past_bound_is_a_dead_letter(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """By the database's clock; the watermark does not hear of it."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn, partitions=1)
    world.write_pipeline(
        PIPELINE.replace("event_time:", "past_bound: 30 days\n      event_time:")
    )
    now = dt.datetime.now(dt.UTC)
    records = world.topic.send(
        [
            sent(
                world.contract,
                event_id=f"{days} days",
                at=now - dt.timedelta(days=days),
                fate="committed" if days < 30 else "TIMESTAMP_TOO_OLD",
            )
            for days in (31, 29)
        ]
    )
    world.run_to_the_end()
    world.assert_fates(records)


@pytest.mark.long
def test_events_far_apart_stop_no_pipeline(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """Each would have a bucket of its own; what has none left is a dead letter."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn, partitions=1)
    ((locks,),) = world.fetch(
        "SELECT current_setting('max_locks_per_transaction')::integer * "
        "(current_setting('max_connections')::integer + "
        "current_setting('max_prepared_transactions')::integer)"
    )
    room = locks // 6
    count = room + 184
    records = world.topic.send(
        [
            sent(
                world.contract,
                event_id=f"n{number}",
                at=NOON - dt.timedelta(hours=22 * number),
                fate="committed" if number < room else "NO_BUCKET_LEFT",
            )
            for number in range(count)
        ]
    )
    world.run_to_the_end()
    world.assert_fates(records)
    # The next batch finds room: the watermark has passed what is old.
    more = world.topic.send([sent(world.contract, event_id="one more")])
    world.run_to_the_end()
    world.assert_fates({**records, **more})
