"""Schemas and payloads of changes, as Debezium and Connect write them."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fastavro

from tallyweir.schemas.contract import load_contract
from tallyweir.schemas.event_contracts import EventContracts, load_event_contract
from tallyweir.schemas.formats.framing import frame

Json = dict[str, Any]

#: A source's columns as the converter writes their types, by name.
COLUMNS: Json = {
    "id": "int",
    "price": {
        "type": "bytes",
        "scale": 2,
        "precision": 10,
        "connect.version": 1,
        "connect.parameters": {"scale": "2", "connect.decimal.precision": "10"},
        "connect.name": "org.apache.kafka.connect.data.Decimal",
        "logicalType": "decimal",
    },
    "wide": {
        "type": "bytes",
        "scale": 10,
        "precision": 50,
        "connect.name": "org.apache.kafka.connect.data.Decimal",
        "logicalType": "decimal",
    },
    "any_number": {
        "type": "record",
        "name": "VariableScaleDecimal",
        "namespace": "io.debezium.data",
        "fields": [
            {"name": "scale", "type": "int"},
            {"name": "value", "type": "bytes"},
        ],
        "connect.name": "io.debezium.data.VariableScaleDecimal",
    },
    "placed": {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"},
    "placed3": {"type": "long", "connect.name": "io.debezium.time.Timestamp"},
    "placed9": {"type": "long", "connect.name": "io.debezium.time.NanoTimestamp"},
    "at": {"type": "string", "connect.name": "io.debezium.time.ZonedTimestamp"},
    "born": {"type": "int", "connect.name": "io.debezium.time.Date"},
    "opens": {"type": "long", "connect.name": "io.debezium.time.MicroTime"},
    "opens3": {"type": "int", "connect.name": "io.debezium.time.Time"},
    "span": {"type": "string", "connect.name": "io.debezium.time.Interval"},
    "lasts": {"type": "long", "connect.name": "io.debezium.time.MicroDuration"},
    "key": {"type": "string", "connect.name": "io.debezium.data.Uuid"},
    "more": {"type": "string", "connect.name": "io.debezium.data.Json"},
    "mood": {
        "type": "string",
        "connect.parameters": {"allowed": "sad,ok"},
        "connect.name": "io.debezium.data.Enum",
    },
    "raw": "bytes",
    "ratio": "double",
    "days": {
        "type": "array",
        "items": ["null", {"type": "int", "connect.name": "io.debezium.time.Date"}],
    },
}
SOURCE: Json = {
    "type": "record",
    "name": "Source",
    "namespace": "io.debezium.connector.postgresql",
    "fields": [
        {"name": "version", "type": "string"},
        {"name": "ts_ms", "type": "long"},
        {
            "name": "snapshot",
            "type": [
                {"type": "string", "connect.name": "io.debezium.data.Enum"},
                "null",
            ],
            "default": "false",
        },
        {"name": "lsn", "type": ["null", "long"], "default": None},
    ],
}
HEARTBEAT: Json = {
    "type": "record",
    "name": "Heartbeat",
    "namespace": "io.debezium.connector.common",
    "fields": [{"name": "ts_ms", "type": "long"}],
}


def envelope(columns: Mapping[str, Any] = COLUMNS) -> Json:
    """Return the schema of the changes of a table whose columns may be null."""
    row = {
        "type": "record",
        "name": "Value",
        "fields": [
            {"name": name, "type": ["null", kind], "default": None}
            for name, kind in columns.items()
        ],
    }
    return {
        "type": "record",
        "name": "Envelope",
        "namespace": "shop.public.orders",
        "fields": [
            {"name": "before", "type": ["null", row], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "source", "type": SOURCE},
            {
                "name": "transaction",
                "type": [
                    "null",
                    {
                        "type": "record",
                        "name": "block",
                        "namespace": "event",
                        "fields": [
                            {"name": "id", "type": "string"},
                            {"name": "total_order", "type": "long"},
                        ],
                    },
                ],
                "default": None,
            },
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"], "default": None},
            {"name": "ts_us", "type": ["null", "long"], "default": None},
        ],
        "connect.name": "shop.public.orders.Envelope",
    }


def change(op: str, **members: object) -> Json:
    """Return a change as fastavro writes it."""
    source = {"version": "3.6", "ts_ms": 1_700_000_000_123, "snapshot": "false"}
    return {
        "before": None,
        "after": None,
        "transaction": None,
        "op": op,
        "ts_ms": 1_700_000_000_456,
        "ts_us": 1_700_000_000_456_789,
        "source": {**source, "lsn": 42},
        **members,
    }


def payload(schema: Json, datum: Json, schema_id: int = 7) -> bytes:
    """Write one payload by a schema, as the converter does."""
    body = io.BytesIO()
    # fastavro would take logical types for its own: the converter writes plain ones.
    fastavro.schemaless_writer(body, fastavro.parse_schema(_plain(schema)), datum)
    return frame(schema_id, body.getvalue())


def contracts(
    folder: Path, schema: Json | None = None, *others: tuple[int, Json]
) -> EventContracts:
    """Return the contracts of changes by a file, whose id is 7, and by its versions."""
    for number, (schema_id, one) in enumerate(((7, schema or envelope()), *others)):
        file = folder / f"orders.v{len(others) + 1 - number}.avsc"
        file.write_text(json.dumps({**one, "schema_id": schema_id}))
    reference = f"debezium:orders.v{len(others) + 1}.avsc"
    load_contract(reference, folder)
    return EventContracts((load_event_contract(reference, folder),))


def _plain(schema: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _plain(one)
        for key, one in schema.items()
        if key != "logicalType" and not key.startswith("connect.")
    }
