"""The changes of a real Postgres become a table, through Debezium and Kafka."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from integration_tests.harness.debezium_connector import (
    DebeziumConnector,
    await_records,
    start_source,
)
from integration_tests.harness.driver_world import DriverWorld
from integration_tests.harness.postgres_driver import execute
from integration_tests.harness.readings import Sent
from integration_tests.harness.written_topic import WrittenTopic
from tallyweir.services.operate.id_fingerprints import fingerprints_of
from tallyweir.sinks.postgres.audit import explain, narrate
from tallyweir.sinks.postgres.server.connection import connect

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_PIPELINE = """
    pipeline: readings
    source:
      topic: [{topic}.public.orders, {topic}.transaction, __debezium-heartbeat.{topic}]
      format: json
      envelope: debezium
      fields:
        row.id: integer
        row.note: text
        row.price: numeric(10,2) from base64
        row.placed: timestamp epoch us
        row.born: date epoch days
        before.price: numeric(10,2) from base64 as former_price
        op: text not null
        source.lsn: bigint
      unknown: refuse
      event_id: {event_id}
      event_time: kafka_timestamp
      watermark_delay: 1 hour
    outputs:
      - append: {{table: order_changes}}
"""
_PLACED = dt.datetime(2026, 11, 26, 8, 16, 9, 123456)  # noqa: DTZ001 - as the source has
_BORN = dt.date(1969, 12, 31)


@pytest.fixture(scope="module")
def source_dsn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Postgres with a table that is followed."""
    server = start_source(tmp_path_factory.mktemp("source"))
    try:
        yield server.dsn
    finally:
        server.delete_data()


def test_each_change_is_a_row_and_nothing_of_a_connector_is_a_dead_letter(
    tmp_path: Path, kafka_bootstrap: str, empty_dsn: str, source_dsn: str
) -> None:
    """With the schema part; the test below reads changes without it."""
    world = DriverWorld(tmp_path, kafka_bootstrap, empty_dsn)
    world.write_pipeline(_PIPELINE.replace("{event_id}", "position"))
    prefix = world.topic.name
    sent = _send_changes(
        tmp_path / "connect",
        kafka_bootstrap,
        source_dsn,
        prefix,
        has_schema=True,
    )
    assert [value is None for _, value in sent].count(True) == 2
    assert all("schema" in json.loads(value) for _, value in sent if value)
    world.run_to_the_end()

    old, new = Decimal("9.99"), Decimal("10.00")
    cent = Decimal("-0.01")
    assert world.fetch(
        "SELECT id, note, price, placed, born, former_price, op FROM order_changes "
        "ORDER BY kafka_offset"
    ) == [
        (1, "a", old, _PLACED, _BORN, None, "r"),
        (2, None, cent, _PLACED, None, None, "c"),
        (1, "a", new, _PLACED, _BORN, old, "u"),
        (2, None, cent, _PLACED, None, cent, "d"),
        (3, None, cent, _PLACED, None, None, "c"),
        (1, "a", new, _PLACED, _BORN, new, "d"),
        (None, None, None, None, None, None, "t"),
    ]
    assert world.fetch("SELECT * FROM tallyweir.dead_letter") == []
    skipped = world.fetch(
        "SELECT DISTINCT condition FROM tallyweir.filtered_event ORDER BY 1"
    )
    assert skipped == [
        ("skipped: heartbeat",),
        ("skipped: tombstone",),
        ("skipped: transaction",),
    ]
    world.assert_verified()
    tombstone = next(place for place, (_, value) in enumerate(sent) if value is None)
    place = f"{prefix}.public.orders[0]@{tombstone}"
    with connect(empty_dsn, application_name="test") as home:
        told = " ".join(
            narrate(explain(home, "readings", place, _probe), lambda _: None)
        )
    assert "was skipped in batch 1" in told
    assert "it is no event but a tombstone." in told


def _probe(key: bytes, text: str) -> tuple[bytes, ...]:
    return fingerprints_of(key, text, None)


def test_a_change_that_a_restarted_connector_sends_again_is_dropped(
    tmp_path: Path, kafka_bootstrap: str, empty_dsn: str, source_dsn: str
) -> None:
    """By position, operation and key; its clocks differ. A truncation has no key."""
    world = DriverWorld(tmp_path, kafka_bootstrap, empty_dsn)
    world.write_pipeline(_PIPELINE.replace("{event_id}", "[source_lsn, op, id]"))
    sent = _send_changes(
        tmp_path / "connect",
        kafka_bootstrap,
        source_dsn,
        world.topic.name,
        has_schema=False,
    )
    again = [json.loads(value) | {"ts_ms": 1} for _, value in sent if value]
    changes = WrittenTopic(kafka_bootstrap, f"{world.topic.name}.public.orders")
    changes.send([Sent(value=json.dumps(one).encode()) for one in again])
    other = again[1] | {"after": again[1]["after"] | {"note": "other"}}
    changes.send([Sent(value=json.dumps(other).encode())])
    world.run_to_the_end()

    assert world.value("SELECT count(*) FROM order_changes") == 6
    assert world.value("SELECT count(*) FROM tallyweir.duplicate_event") == 6
    assert world.fetch(
        "SELECT reason, count(*) FROM tallyweir.dead_letter GROUP BY 1 ORDER BY 1"
    ) == [("ID_CONFLICT", 1), ("MISSING_ID", 2)]
    world.assert_verified()


def _send_changes(
    directory: Path, kafka: str, source_dsn: str, prefix: str, *, has_schema: bool
) -> list[tuple[bytes | None, bytes | None]]:
    """Change a table that a connector follows; return what it has sent of it."""
    execute(
        source_dsn,
        "DROP TABLE IF EXISTS orders",
        "CREATE TABLE orders (id integer PRIMARY KEY, note text, price numeric(10,2), "
        "placed timestamp, born date)",
        "ALTER TABLE orders REPLICA IDENTITY FULL",
        f"INSERT INTO orders VALUES (1, 'a', 9.99, '{_PLACED}', '{_BORN}')",
    )
    connector = DebeziumConnector(
        directory,
        kafka,
        source_dsn,
        prefix,
        {
            "value.converter.schemas.enable": str(has_schema).lower(),
            "table.include.list": "public.orders",
            # Each connector has its own; the names of topics are long enough.
            "slot.name": prefix.replace("-", "_"),
            "publication.name": prefix.replace("-", "_"),
            "provide.transaction.metadata": "true",
            "heartbeat.interval.ms": "200",
        },
    )
    try:
        connector.start()
        await_records(kafka, f"{prefix}.public.orders", 1)
        execute(
            source_dsn,
            f"INSERT INTO orders VALUES (2, NULL, -0.01, '{_PLACED}', NULL)",
            "UPDATE orders SET price = 10 WHERE id = 1",
            "UPDATE orders SET id = 3 WHERE id = 2",
            "DELETE FROM orders WHERE id = 1",
            "TRUNCATE orders",
        )
        # Deletions and the former key are followed by tombstones.
        sent = await_records(kafka, f"{prefix}.public.orders", 9)
        await_records(kafka, f"{prefix}.transaction", 2)
        await_records(kafka, f"__debezium-heartbeat.{prefix}", 1)
    finally:
        connector.remove()
    return sent
