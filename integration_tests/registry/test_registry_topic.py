"""A topic of values that a schema registry's ids frame becomes a table."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from integration_tests.harness.debezium_connector import (
    DebeziumConnector,
    as_avro,
    await_records,
    start_source,
)
from integration_tests.harness.ingest_service import read_stored
from integration_tests.harness.postgres_driver import execute
from integration_tests.harness.readings import NOON, Sent
from integration_tests.harness.registry_world import PASSWORD, SCHEMAS, RegistryWorld
from integration_tests.harness.replayed import replay
from integration_tests.harness.written_topic import WrittenTopic
from tallyweir.services.local.embedded.apicurio import Apicurio
from tallyweir.services.operate.redrive.letter_report import letter_json
from tallyweir.sinks.postgres.audit import read_letter
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.registry_client import URL_VARIABLE, USER_VARIABLE
from tallyweir.sinks.testing.certificates import make_certificates
from tallyweir.sinks.testing.fake_registry import fake_registry

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_JSON = """
    pipeline: readings
    source:
      topic: {topic}
      format: json
      schema: registry
      fields: {{order_id: text not null, amount: integer, note: text}}
      event_id: order_id
      event_time: kafka_timestamp
      watermark_delay: 1 hour
    outputs:
      - append: {{table: orders}}
"""

_JSON_SCHEMA = """
    pipeline: readings
    source:
      topic: {topic}
      format: json
      schema: registry
      event_id: order_id
      event_time: kafka_timestamp
      watermark_delay: 1 hour
    outputs:
      - append: {{table: orders}}
"""

_ENRICHED = """
    pipeline: readings
    source:
      topic: {topic}
      schema: registry
      event_id: order_id
      event_time: at
      watermark_delay: 1 hour
    enrich:
      - topic: {topic}-notes
        schema: registry
        on: {{order_id: order_id}}
        select: {{told: note}}
    outputs:
      - append: {{table: orders, columns: [order_id, amount, told]}}
"""

_CHANGES = """
    pipeline: readings
    source:
      topic: [{topic}.public.things, {topic}.transaction, __debezium-heartbeat.{topic}]
      schema: registry
      subject: {topic}.public.things-value
      envelope: debezium
      event_id: [source_lsn, op, id]
      event_time: source_ts_ms
      watermark_delay: 1 hour
    enrich:
      - topic: {topic}.public.things
        schema: registry
        envelope: debezium
        on: {{id: id}}
        select: {{now: note}}
    outputs:
      - append: {{table: changes}}
"""
_THINGS = """
    CREATE TABLE things (
    id integer PRIMARY KEY, price numeric(10,2), wide numeric(50,10),
    any_number numeric, placed timestamp, placed3 timestamp(3), at timestamptz,
    born date, opens time, key uuid, raw bytea, more jsonb,
    numbers integer[], span interval, note text)
"""
#: A row of that table, as SQL has it; the changes must give the same values.
_THING = """
    -0.01, 1234567890123456789012345678901234567890.0123456789, 12.3400,
    '2026-11-26 08:16:09.123456', '2026-11-26 08:16:09.123',
    '2026-11-26 08:16:09.123456+01', '1969-12-31', '23:59:59.999999',
    '7d444840-9dc0-11d1-b245-5ffdce74fad2', '\\x00ff', '{"b": 1.50, "a": null}',
    '{1,NULL}', '1 year 2 days 3.5 seconds'
"""
_PROTOBUF = """
    pipeline: readings
    source:
      topic: {topic}
      format: protobuf
      schema: registry#Order
      key: {{format: protobuf, schema: key.proto#Key}}
      event_id: order_id
      event_time: kafka_timestamp
      watermark_delay: 1 hour
    outputs:
      - append: {{table: orders, columns: [order_id, amount, price, key_tenant]}}
"""
_PROTO = {
    "money.proto": 'syntax = "proto3"; message Money { int64 units = 1; }',
    "orders.proto": """syntax = "proto3";
        package shop;
        import "money.proto";
        message Payment { string payment_id = 1; }
        message Order { string order_id = 1; int64 amount = 2; Money price = 3; }
    """,
}
_OLDER = {
    "orders.proto": """syntax = "proto3";
        package shop;
        message Order { string id = 1; int32 amount = 2; string coupon = 4; }
    """
}
_UNREADABLE = {
    "orders.proto": """syntax = "proto3";
        package shop;
        message Order { string id = 1; string amount = 2; }
    """
}

#: Within which an outage must be told.
_TOLD_WITHIN_S = 15.0


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apicurio]:
    """A registry for all tests here, which asks for a login, by TLS.

    Drivers know its authority by the file that they are told of.
    """
    certificates = tmp_path_factory.mktemp("certificates")
    make_certificates(certificates)
    registry = Apicurio(
        tmp_path_factory.mktemp("apicurio"), ("shop", PASSWORD), certificates
    )
    try:
        registry.start()
        yield registry
    finally:
        registry.stop()


@pytest.fixture
def registry(shared: Apicurio) -> Apicurio:
    """The same, running whatever the test before has done to it."""
    shared.start()
    return shared


@pytest.mark.parametrize(
    "condition", [None, pytest.param("amount < 100", marks=pytest.mark.long)]
)
def test_all_readable_writers_become_rows_of_the_pinned_version(
    condition: str | None,
    tmp_path: Path,
    kafka_bootstrap: str,
    empty_dsn: str,
    registry: Apicurio,
) -> None:
    """Once an id was read, the registry may be empty: the home has the schema.

    So ``emit`` writes what a serialiser wrote while there was one, to the byte: another
    id would be a conflict.
    """
    world = RegistryWorld(
        tmp_path, kafka_bootstrap, empty_dsn, registry, condition=condition
    )
    world.topic.send(world.orders("first", 1, 2))
    world.run()
    assert [("o001", 1, "n1"), ("o002", 2, "n2")] == world.rows()

    later = world.orders("second", 4) + world.orders("first", 6)
    world.topic.send(
        world.orders("second", 3)
        + world.orders("foreign", 9)
        + world.orders("first", 5)
    )
    world.run()
    ((offset, reason, detail),) = world.dead()
    assert (3, "UNKNOWN_SCHEMA") == (offset, reason)
    assert "amount is written as string and read as int" in detail

    registry.wipe()
    world.topic.send(later)
    sixth: dict[str, object] = {"order_id": "o006", "amount": 6, "note": "n6"}
    world.emit({**sixth, "at": NOON.isoformat()}, registry=False)
    world.run()
    assert [
        ("o001", 1, "n1"),
        ("o002", 2, "n2"),
        ("o003", 3, None),
        ("o004", 4, None),
        ("o005", 5, "n5"),
        ("o006", 6, "n6"),
    ] == world.rows()
    assert 1 == len(world.dead())
    assert 1 == world.value("SELECT max(version) FROM tallyweir.pipeline_version")
    with connect(world.home_dsn, application_name="test") as home:
        letter = read_letter(
            home, "readings", topic=world.topic.name, partition=0, offset=offset
        )
    shown = letter_json(letter, None, None)["decoded"]
    assert "amount is written as string and read as int" in shown["problem"]
    world.assert_verified()


def test_a_driver_waits_for_a_registry_that_is_away_and_nothing_dies(
    tmp_path: Path, kafka_bootstrap: str, empty_dsn: str, registry: Apicurio
) -> None:
    """It claims no further epoch while it waits, and goes on by itself."""
    world = RegistryWorld(tmp_path, kafka_bootstrap, empty_dsn, registry)
    world.topic.send(world.orders("first", 1))
    with world.driver(environment=registry.environment) as driver:
        world.await_read(1)
        sent = world.orders("second", 2)
        registry.stop()
        driver.mark()
        world.topic.send(sent)
        for _ in range(2):
            told = driver.wait_for("starting over", timeout_s=_TOLD_WITHIN_S)
            assert "REGISTRY_UNAVAILABLE" == told["error_code"]
        claims = world.value("SELECT count(*) FROM tallyweir.epoch_claim")
        told = driver.wait_for("starting over", timeout_s=_TOLD_WITHIN_S)
        assert claims == world.value("SELECT count(*) FROM tallyweir.epoch_claim")
        registry.start()
        world.await_read(2)
        driver.send(signal.SIGTERM)
        assert driver.wait() == 0, driver.text
    assert [("o001", 1, "n1"), ("o002", 2, None)] == world.rows()
    assert not world.dead()
    world.assert_verified()


def test_a_schema_that_is_not_there_is_waited_for_by_its_dead_letter(
    tmp_path: Path, kafka_bootstrap: str, empty_dsn: str, registry: Apicurio
) -> None:
    """The letter is sent again once the registry has the schema; nothing counts twice.

    The first driver has the wrong login, and says so before it begins.
    """
    world = RegistryWorld(tmp_path, kafka_bootstrap, empty_dsn, registry)
    stranger = {**registry.environment, USER_VARIABLE: "another"}
    assert "REGISTRY_REFUSED" in world.run(code=78, environment=stranger).text
    with fake_registry() as fake:
        text = world.pipeline_file.read_text()
        world.pipeline_file.write_text(
            text.replace("schema: registry", "schema: registry\n  subject: x-value")
        )
        schema = {"schema": json.dumps(SCHEMAS["first"])}
        named = {"subject": "x-value", "version": 1, "id": 1, **schema}
        fake.answers["/subjects/x-value/versions/latest"] = (200, named)
        fake.answers["/schemas/ids/1"] = (200, schema)
        known, unknown = (
            b"\0" + schema_id.to_bytes(4) + (order.value or b"")[5:]
            for schema_id, order in enumerate(world.orders("first", 2, 1), start=1)
        )
        world.topic.send([Sent(value=unknown)])
        # All that it has read is dead.
        world.run(code=1, environment={URL_VARIABLE: fake.url})
        ((_, reason, detail),) = world.dead()
        assert "UNKNOWN_SCHEMA" == reason
        assert "there is no such schema" in detail

        fake.answers["/schemas/ids/2"] = (200, schema)
        # Another schema under an id that the home keeps.
        other = {"schema": json.dumps(SCHEMAS["foreign"])}
        fake.answers["/schemas/ids/1"] = (200, other)
        world.topic.send([Sent(value=unknown), Sent(value=known)])
        driver = world.run(environment={URL_VARIABLE: fake.url})
    assert "REGISTRY_SCHEMA_CHANGED" in driver.text
    assert [("o001", 1, "n1"), ("o002", 2, "n2")] == world.rows()
    assert 1 == len(world.dead())
    world.assert_verified()
    # The schema is there by now, and the letter's record was dead all the same.
    found = replay(world)
    assert ("VERIFIED BY REPLAY", 0) == (found.verdict, found.exit_code), found.receipt


def test_json_behind_ids_is_read_by_the_fields_that_the_pipeline_names(
    tmp_path: Path, kafka_bootstrap: str, empty_dsn: str, registry: Apicurio
) -> None:
    """The driver need not reach the registry: the id says nothing that it needs.

    ``emit`` asks for it, for other consumers.
    """
    world = RegistryWorld(tmp_path, kafka_bootstrap, empty_dsn, registry)
    world.write_pipeline(_JSON)
    world.topic.send([*world.documents(1, 2), Sent(value=b'{"order_id": "o003"}')])
    world.emit({"order_id": "o004", "amount": 4, "note": "by hand"})
    world.run(environment={})
    stored = read_stored(kafka_bootstrap, world.topic.name).values()
    assert 1 == len({one.value[:5] for one in stored if one.value[0] == 0})
    rows = [("o001", 1, None), ("o002", 2, None), ("o004", 4, "by hand")]
    assert rows == world.rows()
    assert [(2, "BAD_MAGIC")] == [(one, reason) for one, reason, _ in world.dead()]
    world.assert_verified()


def test_the_columns_are_those_of_a_json_schema_whose_versions_are_pinned(
    tmp_path: Path, kafka_bootstrap: str, empty_dsn: str, registry: Apicurio
) -> None:
    """``plan`` finds a newer version and what it adds, and ``update`` pins it.

    Later drivers, and ``emit``, need no registry.
    """
    world = RegistryWorld(tmp_path, kafka_bootstrap, empty_dsn, registry)
    world.write_pipeline(_JSON_SCHEMA)
    world.topic.send(world.documents(1))
    world.run()
    world.topic.send(world.documents(2, coupon="early"))
    plan = json.loads(world.command("plan", "--json", code=1))
    assert "needs migration" == plan["verdict"]
    (changed,) = [one for one in plan["changes"] if one["what"] == "source.schema"]
    assert f"registry:{world.topic.name}-value:1:" in changed["before"]
    assert f"registry:{world.topic.name}-value:2:" in changed["after"]
    assert any("coupon" in statement for statement in plan["ddl"])
    world.command("update", "--reason", "coupons")
    third = {"order_id": "o003", "amount": "3.50", "coupon": "by hand"}
    world.emit(third, registry=False)
    world.run(environment={})
    assert [
        ("o001", 1, None),
        ("o002", 2, "early"),
        ("o003", Decimal("3.5"), "by hand"),
    ] == world.fetch("SELECT order_id, amount, coupon FROM orders ORDER BY 1")
    assert not world.dead()
    world.assert_verified()


def test_messages_of_all_writers_become_rows_of_the_pinned_message(
    tmp_path: Path, kafka_bootstrap: str, empty_dsn: str, registry: Apicurio
) -> None:
    """Others of the schema are dead, and a replay decodes by what the home keeps."""
    world = RegistryWorld(tmp_path, kafka_bootstrap, empty_dsn, registry)
    world.write_pipeline(_PROTOBUF)
    foreign = world.messages(_UNREADABLE, "shop.Order", {"id": "o9", "amount": "9"})
    older = world.messages(
        _OLDER, "shop.Order", {"id": "o1", "amount": 1, "coupon": "c"}
    )
    pinned = world.messages(
        _PROTO, "shop.Order", {"order_id": "o2", "amount": 2, "price": {"units": 5}}
    )
    payment = world.messages(_PROTO, "shop.Payment", {"payment_id": "p1"})
    key = 'syntax = "proto3"; message Key { optional string tenant = 1; }'
    (tmp_path / "key.proto").write_text(key)
    older = [replace(one, key=b"\n\2t1") for one in older]
    world.topic.send([*older, *pinned, *payment, *foreign])
    world.run()
    assert [("o1", 1, None, "t1"), ("o2", 2, {"units": "5"}, None)] == world.fetch(
        "SELECT order_id, amount, price, key_tenant FROM orders ORDER BY 1"
    )
    (other, unreadable) = world.dead()
    told = "the message is shop.Payment, and shop.Order is read"
    assert (2, "WRONG_TYPE", told) == other
    assert (3, "UNKNOWN_SCHEMA") == unreadable[:2]
    assert "amount is written as string and read as int64" in unreadable[2]
    with connect(world.home_dsn, application_name="test") as home:
        letter = read_letter(
            home, "readings", topic=world.topic.name, partition=0, offset=2
        )
    assert told in letter_json(letter, None, None)["decoded"]["problem"]
    world.assert_verified()
    registry.wipe()
    found = replay(world)
    assert ("VERIFIED BY REPLAY", 0) == (found.verdict, found.exit_code), found.receipt


def test_a_lookup_topic_is_read_by_the_ids_of_the_registry_too(
    tmp_path: Path, kafka_bootstrap: str, empty_dsn: str, registry: Apicurio
) -> None:
    """Its own subject is pinned, and another writer of it is asked for."""
    world = RegistryWorld(tmp_path, kafka_bootstrap, empty_dsn, registry)
    world.write_pipeline(_ENRICHED)
    notes = WrittenTopic(kafka_bootstrap, f"{world.topic.name}-notes")
    notes.create(1)
    later = world.orders("second", 2, topic=notes.name)
    told = world.orders("first", 1, topic=notes.name)
    notes.send([replace(one, key=b"k%d" % n) for n, one in enumerate((*later, *told))])
    world.topic.send(world.orders("first", 1, 2, 3))
    world.run()
    assert [("o001", "n1"), ("o002", None), ("o003", None)] == world.fetch(
        "SELECT order_id, told FROM orders ORDER BY 1"
    )
    world.assert_verified()


def test_changes_in_avro_become_rows_with_the_values_of_their_source(
    tmp_path: Path, kafka_bootstrap: str, empty_dsn: str, registry: Apicurio
) -> None:
    """As a real connector writes them, and with what the followed table holds now."""
    world = RegistryWorld(tmp_path, kafka_bootstrap, empty_dsn, registry)
    world.write_pipeline(_CHANGES)
    source = start_source(tmp_path / "source")
    try:
        execute(source.dsn, _THINGS, f"INSERT INTO things VALUES (1, {_THING})")
        columns = "price, wide, any_number, placed, placed3, at, born, opens, raw, span"
        with connect(source.dsn, application_name="test") as connection:
            query = f"SELECT {columns}, key::text, more FROM things"
            (thing,) = connection.execute(query).fetchall()
        _change_things(world, source.dsn, registry)
    finally:
        source.delete_data()
    world.run()

    assert world.fetch(
        "SELECT op, id, before_id, source_snapshot, now FROM changes "
        "ORDER BY kafka_offset"
    ) == [
        ("r", 1, None, "last", None),
        ("u", 1, None, "false", None),
        ("d", 1, 1, "false", None),
        ("c", 3, None, "false", None),
        ("c", 2, None, "false", "a"),
    ]
    assert world.fetch(
        f"SELECT {columns}, key, more, numbers FROM changes WHERE op = 'r'"
    ) == [(*thing, [1, None])]
    assert world.fetch(
        "SELECT DISTINCT condition FROM tallyweir.filtered_event ORDER BY 1"
    ) == [("skipped: heartbeat",), ("skipped: tombstone",), ("skipped: transaction",)]
    # A truncation has no key, so it lacks a part of this ID.
    assert ["MISSING_ID"] == [reason for _, reason, _ in world.dead()]
    world.assert_verified()


def _change_things(world: RegistryWorld, source_dsn: str, registry: Apicurio) -> None:
    prefix = world.topic.name
    slot = prefix.replace("-", "_")
    connector = DebeziumConnector(
        world.directory / "connect",
        world.topic.bootstrap,
        source_dsn,
        prefix,
        {
            **as_avro(registry),
            "table.include.list": "public.things",
            "slot.name": slot,
            "publication.name": slot,
            "interval.handling.mode": "string",
            "provide.transaction.metadata": "true",
            "heartbeat.interval.ms": "200",
        },
    )
    try:
        connector.start()
        await_records(world.topic.bootstrap, f"{prefix}.public.things", 1)
        execute(
            source_dsn,
            "UPDATE things SET price = 10",
            "DELETE FROM things",
            "INSERT INTO things (id) VALUES (3)",
            "TRUNCATE things",
            "INSERT INTO things (id, note) VALUES (2, 'a')",
        )
        # The deletion is followed by a tombstone.
        await_records(world.topic.bootstrap, f"{prefix}.public.things", 7)
        await_records(world.topic.bootstrap, f"{prefix}.transaction", 2)
        await_records(world.topic.bootstrap, f"__debezium-heartbeat.{prefix}", 1)
    finally:
        connector.remove()
