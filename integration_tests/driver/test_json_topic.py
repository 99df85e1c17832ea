"""A topic of plain JSON becomes a table, by the fields that the pipeline file names."""

from __future__ import annotations

import datetime as dt
import json
import random
import signal
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from integration_tests.harness.driver_world import DriverWorld
from integration_tests.harness.readings import NOON, Sent
from integration_tests.harness.spelled_documents import changed, spelled
from tallyweir.services.operate.id_fingerprints import fingerprints_of
from tallyweir.services.operate.redrive.letter_report import letter_json
from tallyweir.sinks.faultpoints import FaultPoint
from tallyweir.sinks.postgres import steering
from tallyweir.sinks.postgres.audit import (
    explain,
    narrate,
    read_letter,
    read_unnamed,
)
from tallyweir.sinks.postgres.server.connection import connect

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_SOURCE = """
    pipeline: readings
    source:
      topic: {topic}
      format: json
      fields:
        order_id: text not null
        customer.id: bigint
        amount: numeric(12,2) not null
        placed_at: timestamptz not null
        paid: boolean
        tags: jsonb
      unknown: rest
      event_id: order_id
      event_time: placed_at
      watermark_delay: 1 hour
"""
_OUTPUTS = """
    outputs:
      - append: {{table: orders}}
"""
_COMPUTED = """
    validate:
      NEGATIVE_AMOUNT: "amount >= 0"
    outputs:
      - append: {{table: orders, where: "customer_id > 0"}}
      - window:
          table: takings
          fixed: 1 hour
          aggregate: {{orders: count(*), total: sum(amount)}}
"""
_DEAD = (
    "SELECT kafka_partition, kafka_offset, reason, detail FROM tallyweir.dead_letter "
    "ORDER BY kafka_offset"
)


def _order(number: int, **changed: object) -> dict[str, Any]:
    return {
        "order_id": f"o{number:03}",
        "customer": {"id": number, "name": "n"},
        "amount": 10.5,
        "placed_at": (NOON + dt.timedelta(seconds=number)).isoformat(),
        "paid": number % 2 == 0,
        "tags": ["a", {"b": 1}],
    } | changed


#: Events that are sent twice, and once with another value.
_SPELLED = 2_000
_FIRST = json.dumps(_order(1))
_ANEW = (
    b' { "tags":["\\u0061",{"b":1.0}], "paid":false, "amount":1050e-2,'
    b'"placed_at":"2024-05-01T12:00:01+00:00",'
    b'"customer":{"name":"n","id":1},"order_id":"o001"} '
)
#: ID, customer, amount, paid, tags, rest.
_TAGS = ["a", {"b": 1}]
_ROWS = [
    ("o001", 1, Decimal("10.50"), False, _TAGS, {"customer": {"name": "n"}}),
    (
        "o002",
        2,
        Decimal("12345678.91"),
        True,
        _TAGS,
        {"customer": {"name": "n"}, "coupon": "x"},
    ),
    ("o008", None, Decimal("10.50"), True, _TAGS, None),
]


_DEATHS = [
    (3, "ID_CONFLICT"),
    (4, "MALFORMED"),
    (5, "OUT_OF_RANGE"),
    (6, "OUT_OF_RANGE"),
    (7, "DUPLICATE_KEY"),
    (8, "MISSING_FIELD"),
    (9, "MALFORMED"),
]


def _sent(*documents: dict[str, Any] | bytes) -> list[Sent]:
    return [
        Sent(value=one if isinstance(one, bytes) else json.dumps(one).encode())
        for one in documents
    ]


def _world(directory: Path, kafka: str, dsn: str, outputs: str) -> DriverWorld:
    world = DriverWorld(directory, kafka, dsn)
    world.write_pipeline(_SOURCE + outputs)
    return world


def test_documents_become_rows_and_each_wrong_one_a_dead_letter_with_its_place(
    tmp_path: Path, kafka_bootstrap: str, empty_dsn: str
) -> None:
    """Values are exact; a copy that was written anew is a duplicate, not a conflict."""
    world = _world(tmp_path, kafka_bootstrap, empty_dsn, _OUTPUTS)
    world.topic.send(
        _sent(
            _FIRST.encode(),
            _order(2, amount=12345678.91, coupon="x"),
            _ANEW,
            _order(1, amount=10.51),
            b"not json",
            _order(3, amount=0.001),
            _order(4, customer={"id": 1.5}),
            b'{"order_id": "o005", "order_id": "o006"}',
            {"order_id": "o007"},
            _FIRST[:-1].encode(),
            _order(8, customer=None),
        )
    )
    world.run_to_the_end()

    rows = world.fetch(
        "SELECT order_id, customer_id, amount, paid, tags, rest FROM orders ORDER BY 1"
    )
    assert rows == _ROWS
    types = dict(
        world.fetch(
            "SELECT column_name, data_type FROM information_schema.columns "
            "WHERE table_name = 'orders'"
        )
    )
    assert (types["tags"], types["rest"]) == ("jsonb", "jsonb")
    assert 1 == world.value("SELECT count(*) FROM tallyweir.duplicate_event")
    dead = world.fetch(_DEAD)
    assert "o004" == world.value(
        "SELECT event_id FROM tallyweir.dead_letter WHERE kafka_offset = 6"
    )
    assert _DEATHS == [(offset, reason) for _, offset, reason, _ in dead], dead
    told = {offset: detail for _, offset, _, detail in dead}
    assert "amount" in told[5]
    assert "customer.id" in told[6]
    assert "order_id" in told[7]
    world.assert_verified()
    assert {"customer.name": 4, "coupon": 1} == _unnamed(world)
    shown = _shown(world, offset=6)
    assert "customer.id" in shown["problem"]
    assert {"order_id": "o004"}.items() <= {
        one["name"]: one["value"] for one in shown["fields"]
    }.items()


_OWN_TABLE = """
    CREATE TABLE orders (
        order_id text, customer_id smallint, amount numeric(4,1), placed_at timestamptz,
        paid boolean, tags text[], rest jsonb,
        kafka_topic text, kafka_partition integer, kafka_offset bigint
    )
"""


def test_what_a_column_of_ones_own_does_not_take_is_a_dead_letter(
    tmp_path: Path, kafka_bootstrap: str, empty_dsn: str
) -> None:
    """Each costs its own event only, and the detail names the column and its type."""
    world = _world(tmp_path, kafka_bootstrap, empty_dsn, _OUTPUTS)
    world.execute(_OWN_TABLE)
    world.topic.send(
        _sent(
            _order(1, tags=["a", "b"]),
            _order(2, tags=["a", 1]),
            _order(3, tags=[], customer={"id": 40_000}),
            _order(4, tags=None, amount=10.55),
            _order(5, tags=None),
        )
    )
    world.run_to_the_end()
    rows = world.fetch("SELECT order_id, tags, amount FROM orders ORDER BY 1")
    ten_and_a_half = Decimal("10.5")
    assert [
        ("o001", ["a", "b"], ten_and_a_half),
        ("o005", None, ten_and_a_half),
    ] == rows
    dead = {
        offset: (reason, detail) for _, offset, reason, detail in world.fetch(_DEAD)
    }
    assert dict.fromkeys((1, 2, 3), "REJECTED_BY_POSTGRES") == {
        offset: reason for offset, (reason, _) in dead.items()
    }
    assert "column tags, which is text[]" in dead[1][1]
    assert "column customer_id, which is smallint" in dead[2][1]
    assert "column amount, which is numeric(4,1)" in dead[3][1]
    world.assert_verified()


def _unnamed(world: DriverWorld) -> dict[str, int]:
    """Return the fields that `status` shows because no file names them."""
    with connect(world.home_dsn, application_name="test") as home:
        return {one.path: one.records for one in read_unnamed(home, "readings")}


def _shown(world: DriverWorld, offset: int) -> dict[str, Any]:
    """Return what ``dead-letters show`` makes of a payload."""
    with connect(world.home_dsn, application_name="test") as home:
        letter = read_letter(
            home, "readings", topic=world.topic.name, partition=0, offset=offset
        )
    found: dict[str, Any] = letter_json(letter, None, world.pipeline_file)["decoded"]
    return found


def test_rules_conditions_and_windows_read_the_same_values(
    tmp_path: Path, kafka_bootstrap: str, empty_dsn: str
) -> None:
    """Spark gets them from the decoder of the tasks."""
    world = _world(tmp_path, kafka_bootstrap, empty_dsn, _COMPUTED)
    world.topic.send(
        _sent(
            *(_order(number, amount=number) for number in range(1, 11)),
            _order(11, amount=-1),
            _order(12, customer={"id": 0}, amount=0.25),
            b"{}",
        )
    )
    world.run_to_the_end()

    assert 10 == world.value("SELECT count(*) FROM orders")
    assert [(11, Decimal("55.25"))] == world.fetch("SELECT orders, total FROM takings")
    assert ["NEGATIVE_AMOUNT", "MISSING_FIELD"] == [
        reason for _, _, reason, _ in world.fetch(_DEAD)
    ]
    world.assert_verified()


def test_copies_spelled_anew_are_repeats_and_changed_ones_are_conflicts(
    tmp_path: Path, kafka_bootstrap: str, empty_dsn: str
) -> None:
    """Whatever a producer does to spaces, order, numbers and escapes, and only that."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201 - pytest shows it with a failure
    source = random.Random(seed)
    orders = [
        _order(
            number,
            amount=Decimal(source.randrange(10**8)) / 100,
            note=source.choice(["a/b", 'é"\\', "\u2028\t", "😀", ""]),
        )
        for number in range(_SPELLED)
    ]
    copies = [(True, one) for one in orders]
    copies += [(False, changed(one, source)) for one in orders]
    source.shuffle(copies)
    world = _world(tmp_path, kafka_bootstrap, empty_dsn, _OUTPUTS)
    documents = [*orders, *(one for _, one in copies)]
    world.topic.send(_sent(*(spelled(one, source).encode() for one in documents)))
    world.run_to_the_end()

    repeats = {(_SPELLED + at,) for at, (is_equal, _) in enumerate(copies) if is_equal}
    assert _SPELLED == world.value("SELECT count(*) FROM orders")
    assert _SPELLED == len(repeats)
    assert repeats == {
        *world.fetch("SELECT kafka_offset FROM tallyweir.duplicate_event")
    }
    assert [("ID_CONFLICT", _SPELLED)] == world.fetch(
        "SELECT reason, count(*) FROM tallyweir.dead_letter GROUP BY 1"
    )
    world.assert_verified()


_PLAIN = """
    pipeline: readings
    source:
      topic: {topic}
      format: json
      fields: {{meter: text not null, kw: double precision}}
      event_id: position
      event_time: kafka_timestamp
      watermark_delay: 1 hour
    outputs:
      - append: {{table: meters}}
      - window:
          table: hourly
          fixed: 1 hour
          by: [meter]
          aggregate: {{n: count(*)}}
"""


def test_a_topic_without_ids_and_times_counts_each_record_once(
    tmp_path: Path, kafka_bootstrap: str, empty_dsn: str
) -> None:
    """Equal records are several; a driver that is killed changes nothing."""
    world = DriverWorld(tmp_path, kafka_bootstrap, empty_dsn)
    world.write_pipeline(_PLAIN)
    world.topic.send(_sent(*[{"meter": "m", "kw": 1.5}] * 7, b"[]"))
    point = FaultPoint.DECISION_COMMITTED.value
    with world.driver(fault=f"after:{point}:1:SIGKILL") as driver:
        assert driver.wait() == -signal.SIGKILL, driver.text
    world.topic.send(_sent({"meter": "m", "kw": None}))
    world.run_to_the_end()

    assert 8 == world.value("SELECT count(*) FROM meters")
    assert [("m", 8)] == world.fetch("SELECT meter, sum(n)::int FROM hourly GROUP BY 1")
    assert 0 == world.value("SELECT count(*) FROM tallyweir.duplicate_event")
    place = f"{world.topic.name}[0]@7"
    assert [(place, "WRONG_TYPE")] == world.fetch(
        "SELECT event_id, reason FROM tallyweir.dead_letter"
    )
    world.assert_verified()
    for offset, told in ((3, "was committed to meters"), (7, "became a dead letter")):
        with connect(world.home_dsn, application_name="test") as home:
            found = explain(home, "readings", f"{world.topic.name}[0]@{offset}", _probe)
        assert told in " ".join(narrate(found, lambda _: None))

    act = steering.ActRequest(pipeline="readings", kind="erase", reason="a test")
    with psycopg.connect(world.home_dsn) as home:
        place = f"{world.topic.name}[0]@3"
        done = steering.erase(
            home, steering.ErasureRequest(act=act, ids=(place,)), _probe
        )
    assert ((world.topic.name, 0, 3),) == done.positions
    assert 7 == world.value("SELECT count(*) FROM meters")
    world.assert_verified()


def _probe(key: bytes, text: str) -> tuple[bytes, ...]:
    return fingerprints_of(key, text, None)
