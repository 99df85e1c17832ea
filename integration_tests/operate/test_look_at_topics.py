"""A look is right about topics of different making, written by real serialisers."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import random
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import fastavro
import pytest
from cloudevents.core.bindings.kafka import to_binary, to_structured
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.timestamp_pb2 import Timestamp

from tallyweir.services.local.datasets.page_views import read_page_views
from tallyweir.services.look.look import look_at
from tallyweir.services.look.look_report import LookReport
from tallyweir.services.look.value_kinds import ValueKind

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

_COUNT = 300
_NOON = dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC)
_CONTEXT = SerializationContext("orders", MessageField.VALUE)
_ORDER_SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "order_id", "type": "string"},
        {"name": "amount", "type": "double"},
    ],
}
_JSON_SCHEMA = {
    "title": "Order",
    "type": "object",
    "properties": {"order_id": {"type": "string"}, "amount": {"type": "number"}},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A record to send."""

    value: bytes | None
    key: bytes | None = None
    headers: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a look must say.

    Attributes:
        kinds: The share of each kind in percent.
        event_id: What the pipeline file has; None if there is no file.
        types: The types of some fields.
        tombstones: How many there are.
    """

    kinds: dict[ValueKind, int]
    event_id: str | None = None
    types: dict[str, str] = field(default_factory=dict)
    tombstones: int = 0


def _order(number: int) -> dict[str, object]:
    at = _NOON + dt.timedelta(seconds=number)
    return {
        "order_id": f"o{number}",
        "customer": {"id": number % 7, "name": "Zoë"},
        "amount": number + 0.25,
        "placed_at": at.isoformat(),
        "lines": [{"sku": "a", "count": 1}],
    }


_ORDER_TYPES = {
    "order_id": "text",
    "customer.id": "bigint",
    "amount": "numeric(12,2)",
    "placed_at": "timestamptz",
    "lines": "jsonb",
}


def _json(value: object, **style: object) -> bytes:
    return json.dumps(value, **style).encode()  # type: ignore[arg-type]


def _registry() -> SchemaRegistryClient:
    return SchemaRegistryClient.new_client({"url": "mock://look"})


def _avro_in_a_registry() -> list[Made]:
    serialise = AvroSerializer(_registry(), json.dumps(_ORDER_SCHEMA))
    orders = [{"order_id": f"o{n}", "amount": n / 4} for n in range(_COUNT)]
    return [Made(value=serialise(order, _CONTEXT)) for order in orders]


def _json_in_a_registry() -> list[Made]:
    serialise = JSONSerializer(json.dumps(_JSON_SCHEMA), _registry())
    orders = [{"order_id": f"o{n}", "amount": n / 4} for n in range(_COUNT)]
    return [Made(value=serialise(order, _CONTEXT)) for order in orders]


def _protobuf_in_a_registry() -> list[Made]:
    # An id, and the index of the first message of its file.
    header = b"\0\0\0\0\7\0"
    moments = [Timestamp(seconds=1_700_000_000 + n, nanos=n) for n in range(_COUNT)]
    return [Made(value=header + one.SerializeToString()) for one in moments]


def _raw_avro() -> list[Made]:
    schema = fastavro.parse_schema(_ORDER_SCHEMA)
    made = []
    for number in range(_COUNT):
        out = io.BytesIO()
        order = {"order_id": f"o{number}", "amount": number + 0.1}
        fastavro.schemaless_writer(out, schema, order)
        made.append(Made(value=out.getvalue()))
    return made


def _debezium(number: int) -> dict[str, object]:
    return {
        "before": None,
        "after": {"id": number, "name": "a"},
        "source": {"version": "3.6.1.Final", "connector": "postgresql", "lsn": number},
        "op": "c",
        "ts_ms": 1_700_000_000_000 + number,
    }


def _cloud_event(number: int) -> CloudEvent:
    attributes = {
        "id": f"e{number}",
        "source": "/shop",
        "type": "placed",
        "time": _NOON,
        "datacontenttype": "application/json",
    }
    return CloudEvent(attributes, {"n": number})


def _structured() -> list[Made]:
    messages = [to_structured(_cloud_event(n), JSONFormat()) for n in range(_COUNT)]
    return [Made(value=one.value, headers=one.headers) for one in messages]


def _binary() -> list[Made]:
    messages = [to_binary(_cloud_event(n), JSONFormat()) for n in range(_COUNT)]
    return [Made(value=one.value, headers=one.headers) for one in messages]


def _csv(number: int) -> bytes:
    out = io.StringIO()
    csv.writer(out).writerow([number, f"o{number}", "12.50", _NOON.isoformat()])
    return out.getvalue().encode()


def _connect(number: int) -> dict[str, object]:
    fields = [{"field": "order_id", "type": "string"}]
    return {
        "schema": {"type": "struct", "fields": fields},
        "payload": {"order_id": f"o{number}"},
    }


def _each(make: Callable[[int], object], **style: object) -> list[Made]:
    return [Made(value=_json(make(n), **style)) for n in range(_COUNT)]


def _camel(number: int) -> dict[str, object]:
    at = _NOON + dt.timedelta(milliseconds=number)
    return {
        "orderId": str(uuid.UUID(int=number)),
        "createdAt": f"{at:%Y-%m-%dT%H:%M:%S}.{number % 1000:03}Z",
        "total": number * 10**12,
        "isGift": number % 2 == 0,
    }


def _changes(number: int) -> Made:
    """States of a few keys, and their ends, as a compacted topic has them."""
    key = b"c%d" % (number % 10)
    is_end = number % 10 == number // 10 % 10
    value = None if is_end else _json({"customer_id": number % 10, "tier": number})
    return Made(key=key, value=value)


_NOISE = random.Random(7)
_TOPICS: dict[str, tuple[Callable[[], Sequence[Made]], Expected]] = {
    "json-of-python": (
        lambda: _each(_order),
        Expected(kinds={ValueKind.JSON: 100}, event_id="order_id", types=_ORDER_TYPES),
    ),
    "json-compact": (
        lambda: _each(_order, separators=(",", ":"), ensure_ascii=False),
        Expected(kinds={ValueKind.JSON: 100}, event_id="order_id", types=_ORDER_TYPES),
    ),
    "json-indented-and-sorted": (
        lambda: _each(_order, indent=2, sort_keys=True),
        Expected(kinds={ValueKind.JSON: 100}, event_id="order_id", types=_ORDER_TYPES),
    ),
    "json-of-javascript": (
        lambda: _each(_camel, separators=(",", ":")),
        Expected(
            kinds={ValueKind.JSON: 100},
            event_id="orderId",
            types={
                "orderId": "uuid",
                "createdAt": "timestamptz",
                "total": "bigint",
                "isGift": "boolean",
            },
        ),
    ),
    "json-arrays": (
        lambda: _each(lambda n: [n]),
        Expected(kinds={ValueKind.JSON_ARRAY: 100}),
    ),
    "avro-of-a-known-contract": (
        lambda: [Made(key=k, value=v) for k, v in read_page_views(_COUNT)],
        Expected(kinds={ValueKind.AVRO: 100}, event_id="event_id"),
    ),
    "avro-in-a-registry": (
        _avro_in_a_registry,
        Expected(kinds={ValueKind.AVRO: 100}, event_id="position"),
    ),
    "json-in-a-registry": (
        _json_in_a_registry,
        Expected(kinds={ValueKind.FRAMED_JSON: 100}),
    ),
    "protobuf-in-a-registry": (
        _protobuf_in_a_registry,
        Expected(kinds={ValueKind.FRAMED_PROTOBUF: 100}, event_id="position"),
    ),
    "raw-avro": (_raw_avro, Expected(kinds={ValueKind.BYTES: 100})),
    "debezium": (
        lambda: _each(_debezium),
        Expected(
            kinds={ValueKind.DEBEZIUM: 100},
            event_id="position",
            types={"row.id": "bigint", "row.name": "text", "op": "text"},
        ),
    ),
    "debezium-with-its-schema": (
        lambda: _each(lambda n: {"schema": {}, "payload": _debezium(n)}),
        Expected(
            kinds={ValueKind.DEBEZIUM_SCHEMA: 100},
            event_id="position",
            types={"row.id": "bigint", "row.name": "text", "op": "text"},
        ),
    ),
    "connect-with-its-schema": (
        lambda: _each(_connect),
        Expected(kinds={ValueKind.CONNECT_SCHEMA: 100}),
    ),
    "cloud-events-structured": (
        _structured,
        Expected(
            kinds={ValueKind.CLOUD_EVENT: 100},
            event_id="id",
            types={"id": "text", "time": "timestamptz", "data.n": "integer"},
        ),
    ),
    "cloud-events-binary": (
        _binary,
        Expected(kinds={ValueKind.JSON: 100}, event_id="header:ce_id"),
    ),
    "text": (
        lambda: [Made(value=b"line %d of a log" % n) for n in range(_COUNT)],
        Expected(kinds={ValueKind.TEXT: 100}),
    ),
    "csv": (
        lambda: [Made(value=_csv(n)) for n in range(_COUNT)],
        Expected(kinds={ValueKind.TEXT: 100}),
    ),
    "bytes": (
        lambda: [Made(value=b"\x89" + _NOISE.randbytes(30)) for _ in range(_COUNT)],
        Expected(kinds={ValueKind.BYTES: 100}),
    ),
    "compacted": (
        lambda: [_changes(n) for n in range(100)],
        Expected(kinds={ValueKind.JSON: 100}, event_id="position", tombstones=10),
    ),
    "empty": (list, Expected(kinds={})),
    "one-record": (
        lambda: [Made(value=_json(_order(1)))],
        Expected(kinds={ValueKind.JSON: 100}, event_id="order_id"),
    ),
    "mixed": (
        lambda: [
            Made(value=b"text" if n % 4 == 0 else _json(_order(n))) for n in range(100)
        ],
        Expected(
            kinds={ValueKind.JSON: 75, ValueKind.TEXT: 25},
            event_id="order_id",
            types=_ORDER_TYPES,
        ),
    ),
    "id-in-the-header": (
        lambda: [
            Made(value=_json({"n": n % 3}), headers={"message_id": b"m%d" % n})
            for n in range(_COUNT)
        ],
        Expected(kinds={ValueKind.JSON: 100}, event_id="header:message_id"),
    ),
}


def _send(bootstrap: str, topic: str, records: Sequence[Made], **more: object) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    settings = {str(name): str(value) for name, value in more.items()}
    new = NewTopic(topic, num_partitions=2, replication_factor=1, config=settings)
    for created in admin.create_topics([new]).values():
        created.result()
    producer = Producer({"bootstrap.servers": bootstrap})
    for one in records:
        headers: list[tuple[str, str | bytes | None]] = [*one.headers.items()]
        producer.produce(topic, key=one.key, value=one.value, headers=headers)
    assert producer.flush(30) == 0


def _check(report: LookReport, records: int, expected: Expected) -> None:
    profile, proposal = report.profile, report.proposal
    assert report.extent.is_whole
    assert report.extent.records == records
    shares = {
        kind: round(100 * count / profile.values)
        for kind, count in profile.kinds.items()
    }
    assert shares == expected.kinds
    assert profile.tombstones == expected.tombstones
    assert (proposal.id_name if proposal else None) == expected.event_id
    if proposal is not None:
        types = {one.name: one.type.sql for one in proposal.fields}
        assert expected.types.items() <= types.items()
    assert list(report.parts())


@pytest.mark.parametrize("made", _TOPICS)
def test_a_look_is_right_about_a_topic(made: str, kafka_bootstrap: str) -> None:
    """Its kind, the types of its fields, its ID, its tombstones."""
    make, expected = _TOPICS[made]
    records = make()
    topic = f"look-{made}-{uuid.uuid4().hex[:8]}"
    policy = "compact" if made == "compacted" else "delete"
    _send(kafka_bootstrap, topic, records, **{"cleanup.policy": policy})
    report = look_at(kafka_bootstrap, topic, records=None)
    _check(report, len(records), expected)
    assert report.facts.settings["cleanup.policy"] == policy


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_a_look_reads_a_compressed_topic(
    compression: str, kafka_bootstrap: str
) -> None:
    """Whichever way."""
    topic = f"look-{compression}-{uuid.uuid4().hex[:8]}"
    settings = {"compression.type": compression}
    _send(kafka_bootstrap, topic, _each(_order), **settings)
    report = look_at(kafka_bootstrap, topic, records=None)
    expected = Expected(kinds={ValueKind.JSON: 100}, event_id="order_id")
    _check(report, _COUNT, expected)
    assert report.facts.settings["compression.type"] == compression


def test_a_look_sees_committed_records_only(kafka_bootstrap: str) -> None:
    """What was aborted is a gap, and so is the end of each transaction."""
    topic = f"look-transactions-{uuid.uuid4().hex[:8]}"
    _send(kafka_bootstrap, topic, [])
    producer = Producer(
        {"bootstrap.servers": kafka_bootstrap, "transactional.id": topic}
    )
    producer.init_transactions()
    for number in range(6):
        producer.begin_transaction()
        for index in range(10):
            order = _json(_order(10 * number + index))
            producer.produce(topic, value=order, partition=0)
        producer.flush()
        if number % 3 == 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    report = look_at(kafka_bootstrap, topic, records=None)
    expected = Expected(kinds={ValueKind.JSON: 100}, event_id="order_id")
    _check(report, 40, expected)
    assert report.extent.gaps == 20 + 6
