"""Keys, headers, times and topics of records are columns and IDs of events."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import psycopg
import pytest

from integration_tests.harness.driver_world import DriverWorld
from integration_tests.harness.readings import NOON, Sent, reading
from tallyweir.schemas.codec import encode
from tallyweir.services.operate.id_fingerprints import fingerprints_of
from tallyweir.sinks.postgres.audit import explain
from tallyweir.sinks.postgres.server.connection import connect

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
    validate:
      TOO_LATE: "kafka_timestamp < TIMESTAMP '2100-01-01 00:00:00Z'"
    filter: "coalesce(`header:trace.id`, '') <> 'skipped'"
    outputs:
      - append:
          table: orders
          columns: [number, key_tenant, key_order_id, kafka_key, kafka_timestamp,
            "header:trace.id", kafka_headers, "header:kind"]
          where: "kafka_topic = '{topic}'"
      - window:
          table: by_tenant
          fixed: 1 hour
          by: [key_tenant, kafka_topic, "header:kind"]
          aggregate: {{orders: count(*), newest: max(kafka_timestamp)}}
"""
_Header = tuple[str, bytes | None]
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
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.write_pipeline(_PARTS)
    world.topic.send(_SENT)
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
