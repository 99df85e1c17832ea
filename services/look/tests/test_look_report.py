"""What a look says, and the file that it proposes."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
import yaml

from tallyweir.schemas.codec import encode
from tallyweir.schemas.contract import load_contract
from tallyweir.schemas.pipeline.events.source import PositionId
from tallyweir.schemas.pipeline.pipeline_file import load_pipeline
from tallyweir.services.look.look import require_new
from tallyweir.services.look.pipeline_proposal import (
    pipeline_name,
    table_name,
    write_yaml,
)
from tallyweir.services.look.tests.looked_topics import proposed, record, records, told
from tallyweir.services.look.topic_reader import plan_sections
from tallyweir.sinks.protocol.errors import ConfigurationError

_ORDERS = [
    {"order_id": f"o{n}", "secret": "hunter2", "at": f"2026-11-20T10:00:0{n}Z"}
    for n in range(8)
]


def test_the_file_is_a_pipeline_that_loads(tmp_path: Path) -> None:
    """Names that YAML would read otherwise are quoted."""
    odd = {"yes": 1, "a: b": "x", "it's": 1, "#": 1, "null": 2, "ÿ": 1, "1": 1}
    found = records([one | odd for one in _ORDERS])
    path = tmp_path / "orders.yaml"
    path.write_text(write_yaml(proposed(found), "a sample", tmp_path), "utf-8")
    source = load_pipeline(path).source
    assert ("order_id", "at") == (source.event_id, source.event_time)
    assert {*odd, *_ORDERS[0]} == set(source.fields)
    assert not path.read_text("utf-8").startswith("# yaml-language-server")


def test_a_schema_beside_the_file_is_named_in_its_first_line(tmp_path: Path) -> None:
    """Editors read it there."""
    (tmp_path / "pipeline.schema.json").write_text("{}")
    text = write_yaml(proposed(records(_ORDERS)), "all", tmp_path)
    assert text.startswith("# yaml-language-server: $schema=pipeline.schema.json\n")
    assert "orders" == yaml.safe_load(text)["pipeline"]


def test_redacted_reports_hold_no_value() -> None:
    """Neither as an example nor in the first rows."""
    found = records(_ORDERS)
    assert "hunter2" in told(found)
    assert "hunter2" not in told(found, is_redacted=True)
    assert "o1" not in told(found, is_redacted=True).split()


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"retention.ms": "-1"}, "without a limit"),
        ({"retention.ms": "604800000"}, "7 days; the oldest unread data goes in 6 day"),
        ({"retention.ms": "1000"}, "may go at any moment"),
        ({}, "unknown"),
    ],
)
def test_retention_says_how_long_unread_data_stays(
    settings: dict[str, str], text: str
) -> None:
    """By the oldest record that was read."""
    assert text in told(records(_ORDERS), settings=settings)


def test_offsets_without_a_record_are_counted() -> None:
    """They are ends of transactions, aborted or compacted."""
    assert "offsets without a record: 2 " in told(records(_ORDERS))


def test_a_sample_is_the_start_the_middle_and_the_end_of_each_partition() -> None:
    """A small partition is read whole; an empty one not at all."""
    offsets = {0: (100, 1_100), 1: (0, 7), 2: (5, 5)}
    assert [
        {0: (100, 110), 1: (0, 7)},
        {0: (595, 605)},
        {0: (1_090, 1_100)},
    ] == plan_sections(offsets, 60)
    assert [{0: (100, 1_100), 1: (0, 7)}] == plan_sections(offsets, None)
    assert [] == plan_sections({0: (3, 3)}, 60)


def test_a_file_that_is_there_is_left_alone(tmp_path: Path) -> None:
    """Unless the user says so."""
    path = tmp_path / "orders.yaml"
    require_new(path, force=False)
    path.touch()
    with pytest.raises(ConfigurationError, match=r"FILE_EXISTS.*--force"):
        require_new(path, force=False)
    require_new(path, force=True)


@pytest.mark.parametrize(
    ("topic", "pipeline", "table"),
    [
        ("orders", "orders", "orders"),
        ("Shop.Orders-v2", "shop-orders-v2", "shop_orders_v2"),
        ("2024_sales", "topic-2024_sales", "events_2024_sales"),
        ("x" * 200, "x" * 40, "x" * 50),
    ],
)
def test_a_topic_gives_its_name_to_pipeline_and_table(
    topic: str, pipeline: str, table: str
) -> None:
    """As far as both may have it."""
    assert (pipeline, table) == (pipeline_name(topic), table_name(topic))


def test_a_known_avro_contract_is_named_in_the_file(tmp_path: Path) -> None:
    """Its fields are candidates as those of documents are."""
    contract = load_contract("order.v1")
    found = [
        record(
            encode(
                contract,
                {
                    "order_id": f"o{number}",
                    "customer_id": 1,
                    "amount_cents": 100,
                    "currency": "EUR",
                    "ordered_at": dt.datetime(2026, 11, 20, 10, number, tzinfo=dt.UTC),
                },
            ),
            number,
        )
        for number in range(5)
    ]
    text = write_yaml(proposed(found), "all", tmp_path)
    path = tmp_path / "orders.yaml"
    path.write_text(text, "utf-8")
    source = load_pipeline(path).source
    assert ("order.v1", "order_id", "ordered_at") == (
        source.schema,
        source.event_id,
        source.event_time,
    )
    assert "order.v1" in told(found)


@pytest.mark.parametrize(
    ("body", "written"),
    [(b"\x06abc\x02", "avro"), (b"\x00\x0a\x03abc\x10\x01", "protobuf")],
)
def test_values_behind_unknown_ids_are_left_to_the_registry(
    tmp_path: Path, body: bytes, written: str
) -> None:
    """Nothing is known of their fields, so ID and time are Kafka's."""
    found = [record(b"\0\0\0\0\x2a" + body, number) for number in range(5)]
    path = tmp_path / "orders.yaml"
    path.write_text(write_yaml(proposed(found), "all", tmp_path), "utf-8")
    source = load_pipeline(path).source
    assert ("registry", written) == (source.schema, source.format)
    assert "orders-value" == source.wanted_subject
    assert PositionId() == source.event_id
    assert "kafka_timestamp" == source.event_time
    assert "The schema registry has them." in told(found)
    assert "schema id 42: 5 values, not known here" in told(found)


@pytest.mark.parametrize("has_schema", [False, True])
def test_a_topic_of_debezium_gets_its_envelope(
    tmp_path: Path, *, has_schema: bool
) -> None:
    """With the schema part, the types are those that it says."""
    columns = [
        {"type": "int32", "optional": False, "field": "id"},
        {
            "type": "bytes",
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": "2", "connect.decimal.precision": "10"},
            "field": "price",
        },
        {"type": "int64", "name": "io.debezium.time.MicroTimestamp", "field": "at"},
        {"type": "string", "name": "io.debezium.data.Json", "field": "op"},
    ]
    schema = {"type": "struct", "fields": [{"field": "after", "fields": columns}]}
    row = {"id": 1, "price": "AMg=", "at": 1_700_000_000_123_456, "op": "x"}
    changes: list[object] = [
        {"before": None, "after": row, "source": {"lsn": 1}, "op": "c", "ts_ms": 1},
        {"before": row, "after": None, "source": {"lsn": 2}, "op": "d", "ts_ms": 1},
    ]
    if has_schema:
        changes = [{"schema": schema, "payload": one} for one in changes]
    found = records([*changes, None])
    path = tmp_path / "orders.yaml"
    path.write_text(write_yaml(proposed(found), "a sample", tmp_path), "utf-8")
    source = load_pipeline(path).source
    assert source.envelope == "debezium"
    assert source.fields == {
        "row.id": "integer" if has_schema else "bigint",
        "row.price": "numeric(10,2) from base64" if has_schema else "text",
        "row.at": "timestamp epoch us" if has_schema else "bigint",
        "row.op": "text as row_op",
        "op": "text",
    }
    said = told(found)
    assert ("2023-11-14 22:13:20.123456" in said) == has_schema
    assert "would be dead letters" not in said
