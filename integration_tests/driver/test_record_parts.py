"""Keys, headers, times and topics of records are columns and IDs of events."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import psycopg
import pytest

from integration_tests.harness.driver_world import DriverWorld
from integration_tests.harness.noted_slice import noted
from integration_tests.harness.readings import NOON, Sent, reading, write_contract
from integration_tests.harness.replayed import replay
from tallyweir.schemas.codec import encode
from tallyweir.services.operate.id_fingerprints import fingerprints_of
from tallyweir.services.operate.redrive.redriver import redrive
from tallyweir.sinks.postgres.audit import explain, find_window_rows
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.steering import (
    ActRequest,
    ErasureRequest,
    RedriveSelection,
    erase,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_PARTS = """
    pipeline: readings
    source:
      topic: {topic}
      format: json
      fields:
        number: integer not null
        placed_at: timestamptz not null
      key:
        format: json
        fields:
          tenant: text not null
          order.id: bigint not null
      event_id: [key.tenant, key.order_id, header:kind]
      event_time: placed_at
      watermark_delay: 1 hour
    enrich:
      - table: tenants
        on: {{key_tenant: tenant}}
        select: {{plan: plan}}
    validate:
      TOO_LATE: "kafka_timestamp < TIMESTAMP '2100-01-01 00:00:00Z'"
    filter: "coalesce(`header:trace.id`, '') <> 'skipped'"
    outputs:
      - append:
          table: orders
          columns: [number, key_tenant, key_order_id, kafka_key, kafka_timestamp,
            "header:trace.id", kafka_headers, "header:kind", plan]
          where: "kafka_topic IN ('{topic}', 'batch:tail')"
      - window:
          table: by_tenant
          fixed: 1 hour
          by: [key_tenant, kafka_topic, "header:kind"]
          aggregate: {{orders: count(*), newest: max(kafka_timestamp)}}
"""
_AT_MS = 1_714_564_800_123


def _order(number: int) -> bytes:
    at = NOON + dt.timedelta(seconds=number)
    return json.dumps({"number": number, "placed_at": at.isoformat()}).encode()


def _key(tenant: object, order: object) -> bytes:
    return json.dumps({"tenant": tenant, "order": {"id": order}}).encode()


def _kind(
    kind: str, *others: tuple[str, bytes | None]
) -> list[tuple[str, bytes | None]]:
    return [("kind", kind.encode()), *others]


_AT = dt.datetime.fromtimestamp(_AT_MS / 1_000, dt.UTC)
_ROWS = [
    (
        1,
        'a"b',
        7,
        _key('a"b', 7),
        _AT,
        "t1",
        [
            {"name": "kind", "value": "new"},
            {"name": "trace.id", "value": "old"},
            {"name": "trace.id", "value": "t1"},
        ],
    ),
    (
        3,
        'a"b',
        7,
        _key('a"b', 7),
        _AT,
        None,
        [
            {"name": "kind", "value": "paid"},
            {"name": "bytes", "base64": "/w=="},
            {"name": "none", "value": None},
        ],
    ),
]
_SENT = [
    Sent(
        value=_order(1),
        key=_key('a"b', 7),
        headers=_kind("new", ("trace.id", b"old"), ("trace.id", b"t1")),
        timestamp_ms=_AT_MS,
    ),
    Sent(value=_order(1), key=_key('a"b', 7.0), headers=_kind("new")),
    Sent(value=_order(2), key=_key('a"b', 7), headers=_kind("new")),
    Sent(
        value=_order(3),
        key=_key('a"b', 7),
        headers=_kind("paid", ("bytes", b"\xff"), ("none", None)),
        timestamp_ms=_AT_MS,
    ),
    Sent(value=_order(4), key=_key("c", 1), headers=[]),
    Sent(value=_order(5), key=None, headers=_kind("new")),
    Sent(value=_order(6), key=b"no json", headers=_kind("new")),
    Sent(
        value=_order(7),
        key=_key("c", 7),
        headers=_kind("new", ("trace.id", b"\xc3\x28")),
    ),
    Sent(
        value=_order(8),
        key=_key("c", 8),
        headers=_kind("new", ("trace.id", b"skipped")),
    ),
]


def test_keys_headers_times_and_topics_are_columns_and_ids(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """What Spark computes of them and what tasks read of them agree."""
    world = _world(tmp_path, kafka_bootstrap, home_dsn)
    world.run_to_the_end()
    with psycopg.connect(home_dsn) as home:
        rows = home.execute(
            "SELECT number, key_tenant, key_order_id, kafka_key, kafka_timestamp, "
            "header_trace_id, kafka_headers FROM orders ORDER BY number"
        ).fetchall()
        dead = home.execute(
            "SELECT kafka_offset, reason, event_id FROM tallyweir.dead_letter "
            "ORDER BY kafka_offset"
        ).fetchall()
        repeats = home.execute(
            "SELECT kafka_offset, event_id FROM tallyweir.duplicate_event"
        ).fetchall()
        windows = home.execute(
            "SELECT key_tenant, kafka_topic, header_kind, orders, newest "
            "FROM by_tenant ORDER BY header_kind"
        ).fetchall()
    assert rows == _ROWS
    with connect(home_dsn, application_name="test") as home:
        found = explain(
            home,
            "readings",
            '["a\\"b", 7, "new"]',
            lambda key, text: fingerprints_of(key, text, None),
        )
    assert [(one.fate.value, one.offset) for one in found.sightings] == [
        ("committed", 0),
        ("duplicate", 1),
        ("dead", 2),
    ]
    assert found.catalog_hits
    assert found.event_id == '["a\\"b",7,"new"]'
    name = world.topic.name
    assert windows == [('a"b', name, "new", 1, _AT), ('a"b', name, "paid", 1, _AT)]
    new = '["a\\"b",7,"new"]'
    assert repeats == [(1, new)]
    assert dead == [
        (2, "ID_CONFLICT", new),
        (4, "MISSING_ID", None),
        (5, "MISSING_KEY", None),
        (6, "MALFORMED_KEY", None),
        (7, "HEADER_NOT_TEXT", '["c",7,"new"]'),
    ]
    assert [("gold",)] == world.fetch("SELECT DISTINCT plan FROM orders")
    with connect(world.home_dsn, application_name="test") as home:
        columns = {"key_tenant": 'a"b', "kafka_topic": name, "header_kind": "paid"}
        (row,) = find_window_rows(home, "readings", {"placed_at": NOON, **columns})
    assert row.is_sure
    assert columns == row.by
    again = replay(world)
    assert ("VERIFIED BY REPLAY", 0) == (again.verdict, again.exit_code), again.receipt
    _assert_sent_again(world)
    _assert_read_by_a_batch_run(world)
    _assert_erased(world)


def _assert_sent_again(world: DriverWorld) -> None:
    """A letter keeps its key and headers, so it dies again under its ID."""
    selection = RedriveSelection(pipeline="readings", group="HEADER_NOT_TEXT")
    with connect(world.home_dsn, application_name="test") as home:
        done = redrive(home, world.topic.bootstrap, selection, reason="a test")
    assert 1 == done.sent
    # All that is left to read is dead.
    world.run_to_the_end(code=1)
    letters = world.fetch(
        "SELECT event_id, detail, key FROM tallyweir.dead_letter "
        "WHERE reason = 'HEADER_NOT_TEXT'"
    )
    assert 2 == len(letters)
    assert 1 == len(set(letters))


def _assert_read_by_a_batch_run(world: DriverWorld) -> None:
    headers = _kind("paid", ("trace.id", b"t10"))
    ((partition, offset),) = world.topic.send(
        [Sent(value=_order(10), key=_key("c", 10), headers=headers)]
    )
    place = f"{world.topic.name}:{partition}:{offset}-{offset + 1}"
    world.run_batch("tail", place)
    assert [("c", 10, "t10", "paid", "free")] == world.fetch(
        "SELECT key_tenant, key_order_id, header_trace_id, header_kind, plan "
        "FROM orders WHERE number = 10"
    )
    world.assert_verified()


def _assert_erased(world: DriverWorld) -> None:
    """By its ID as people write it, with all that is known of it."""
    act = ActRequest(pipeline="readings", kind="erase", reason="a test")
    request = ErasureRequest(act=act, ids=('["a\\"b", 7, "new"]',))
    with psycopg.connect(world.home_dsn) as home:
        erase(home, request, lambda key, text: fingerprints_of(key, text, None))
    assert [(3,), (10,)] == world.fetch("SELECT number FROM orders ORDER BY 1")
    assert [(None,)] == world.fetch("SELECT event_id FROM tallyweir.duplicate_event")
    assert [(None, None, None)] == world.fetch(
        "SELECT event_id, key, payload FROM tallyweir.dead_letter "
        "WHERE reason = 'ID_CONFLICT'"
    )
    world.assert_verified()


_PROGRAM = """
import json, sys
from tallyweir import open_slice
with open_slice(sys.argv[1]).stages() as stages:
    names = ["key_tenant", "key_order_id", "header_trace_id", "header_kind", "plan"]
    rows = stages.dry_publish().tables["orders"].sort_values("number")[names]
    compared = stages.compare_with_committed()
    print(json.dumps({
        "rows": rows.astype(object).values.tolist(),
        "verdicts": compared.records["verdict"].value_counts().to_dict(),
    }))
"""


@pytest.mark.long
def test_a_notebook_has_the_columns_that_a_driver_has(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """Keys and headers are in a slice as Kafka has them."""
    world = _world(tmp_path, kafka_bootstrap, home_dsn)
    world.run_to_the_end()
    found = noted(world, _PROGRAM)
    assert [
        ['a"b', 7, "t1", "new", "gold"],
        ['a"b', 7, None, "paid", "gold"],
    ] == found["rows"]
    assert {"equal": len(_SENT)} == found["verdicts"]


def _world(directory: Path, kafka: str, dsn: str) -> DriverWorld:
    world = DriverWorld(directory, kafka, dsn)
    world.write_pipeline(_PARTS)
    world.execute(
        "CREATE TABLE tenants (tenant text PRIMARY KEY, plan text)",
        """INSERT INTO tenants VALUES ('a"b', 'gold'), ('c', 'free')""",
    )
    world.topic.send(_SENT)
    return world


_KEYED = """
    pipeline: readings
    source:
      topic: {topic}
      schema: reading.v1.avsc
      key: {{format: text}}
      event_id: key
      event_time: at
      watermark_delay: 1 hour
    outputs:
      - append: {{table: readings, columns: [key, amount, kafka_key, kafka_timestamp]}}
"""


@pytest.mark.parametrize("offsets", ["0", "1000"])
def test_the_key_is_the_id_whoever_reads_the_records(
    offsets: str, tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """Spark, or the driver itself, which reads small batches without Spark."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.write_pipeline(_KEYED)

    def sent(key: bytes | None, amount: int) -> Sent:
        value = encode(world.contract, reading(amount=amount))
        return Sent(value=value, key=key, timestamp_ms=_AT_MS)

    repeat = sent(b"k1", 1)
    world.topic.send(
        [
            repeat,
            repeat,
            sent(b"k1", 2),
            sent(None, 3),
            sent(b"\xc3(", 4),
            sent("é".encode(), 5),
            Sent(value=None, key=b"gone"),
        ]
    )
    settings = {"TALLYWEIR_SMALL_BATCH_OFFSETS_MAX": offsets}
    world.run_to_the_end(environment=settings)
    with psycopg.connect(home_dsn) as home:
        rows = home.execute("SELECT * FROM readings ORDER BY amount").fetchall()
        dead = home.execute(
            "SELECT kafka_offset, reason, event_id FROM tallyweir.dead_letter "
            "ORDER BY kafka_offset"
        ).fetchall()
    assert [row[:4] for row in rows] == [
        ("k1", 1, b"k1", _AT),
        ("é", 5, "é".encode(), _AT),
    ]
    assert dead == [
        (2, "ID_CONFLICT", "k1"),
        (3, "MISSING_ID", None),
        (4, "MALFORMED_KEY", None),
        (6, "EMPTY_PAYLOAD", "gone"),
    ]


_AVRO_KEY: dict[str, object] = {
    "type": "record",
    "name": "Site",
    "fields": [
        {"name": "code", "type": "string"},
        {"name": "floor", "type": ["null", "long"], "default": None},
    ],
}
_LOOKED_UP = """
    pipeline: readings
    source:
      topic: {topic}
      schema: reading.v1.avsc
      key: {{format: avro, schema: site.v1.avsc}}
      event_id: event_id
      event_time: at
      watermark_delay: 1 hour
    enrich:
      - table: floors
        on: {{key_code: site, key_floor: floor}}
        select: {{place: name}}
    outputs:
      - append: {{table: readings, columns: [amount, key_code, key_floor, place]}}
"""


def test_rows_are_looked_up_by_the_fields_of_an_avro_key(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """A field that is null matches nothing; a key that is no Avro is a dead letter."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    key = write_contract(tmp_path / "site.v1.avsc", _AVRO_KEY)
    world.write_pipeline(_LOOKED_UP)
    world.execute(
        "CREATE TABLE floors (site text, floor bigint, name text)",
        "INSERT INTO floors VALUES ('A', 2, 'roof'), ('A', NULL, 'x'), ('B', 2, 'y')",
    )

    def sent(amount: int, floor: int | None, key_bytes: bytes | None = None) -> Sent:
        value = encode(world.contract, reading(event_id=f"r{amount}", amount=amount))
        made = key_bytes or encode(key, {"code": "A", "floor": floor})
        return Sent(value=value, key=made)

    world.topic.send([sent(1, 2), sent(2, None), sent(3, 7), sent(4, 2, b"no key")])
    world.run_to_the_end()
    assert [(1, "A", 2, "roof"), (2, "A", None, None), (3, "A", 7, None)] == (
        world.fetch(
            "SELECT amount, key_code, key_floor, place FROM readings ORDER BY 1"
        )
    )
    assert [("MALFORMED_KEY",)] == world.fetch(
        "SELECT reason FROM tallyweir.dead_letter"
    )
    world.assert_verified()
