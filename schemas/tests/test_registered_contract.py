"""Contracts of a schema registry, from what is kept of it."""

from __future__ import annotations

import io
import json
import pickle
from dataclasses import replace
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from tallyweir.schemas.codec import decode, encode
from tallyweir.schemas.errors import ContractError
from tallyweir.schemas.event_contracts import load_event_contracts
from tallyweir.schemas.formats.avro.tests.made_changes import HEARTBEAT, envelope
from tallyweir.schemas.pipeline.events.source import is_message
from tallyweir.schemas.registered_contract import Pin
from tallyweir.sinks.protocol.registered_schema import RegisteredSchema

_ID = {"name": "id", "type": "string"}
_AT = {"name": "at", "type": "string"}


def _schema(
    schema_id: int, *fields: object, kind: str = "AVRO", name: str = "Order"
) -> RegisteredSchema:
    text = json.dumps({"type": "record", "name": name, "fields": list(fields)})
    return RegisteredSchema(schema_id=schema_id, kind=kind, text=text)


def _pin(schema_id: int, subject: str = "orders-value") -> str:
    return Pin(subject=subject, version=3, schema_id=schema_id).reference


@pytest.mark.parametrize("subject", ["orders-value", "a:1:2", "registry:x", "a#b", ""])
def test_a_pin_is_what_its_reference_says(subject: str) -> None:
    """A subject may have any characters."""
    pin = Pin(subject=subject, version=3, schema_id=17)
    assert pin == Pin.of(pin.reference)
    for part in ("", "Order", "shop.Order"):
        of_message = replace(pin, part=part)
        assert of_message == Pin.of(of_message.reference)
        assert is_message(of_message.reference)
    assert not is_message(pin.reference)


@pytest.mark.parametrize(
    "reference", ["registry", "registry:", "registry:a:1", "registry:a:1:x", "a:1:2"]
)
def test_other_references_are_not_pins(reference: str) -> None:
    """They are left to those who read contracts' names and files."""
    assert Pin.of(reference) is None


def test_every_schema_that_the_pinned_one_reads_is_a_writer() -> None:
    """The others are none, each for its own reason."""
    number = {"name": "n", "type": "int"}
    added = {"name": "note", "type": "string", "default": "-"}
    registered = (
        _schema(4, _ID, added),
        _schema(7, _ID, number),
        _schema(9, {"name": "id", "type": "long"}),
        _schema(11, _ID, name="Payment"),
        _schema(12, _ID, kind="XML"),
        RegisteredSchema(schema_id=13, kind="AVRO", text='"string"'),
        RegisteredSchema(schema_id=14, kind="AVRO", text="{"),
    )
    contracts = load_event_contracts([_pin(4)], None, registered)
    assert {4, 7} == set(contracts.writers)
    assert ["id", "note"] == [one.name for one in contracts.fields]
    (one,) = contracts.each
    assert "orders-value.v3" == one.contract.reference
    assert {9, 11, 12, 13, 14} == set(one.unreadable)
    assert "id is written as long and read as string" in one.unreadable[9]
    assert "Payment" in one.unreadable[11]
    assert "'XML'" in one.unreadable[12]
    assert contracts.writers == pickle.loads(pickle.dumps(contracts)).writers

    payload = encode(contracts.writers[7], {"id": "a", "n": 5})
    assert {"id": "a", "n": 5} == decode(payload, contracts.writers)


def test_a_batch_tells_the_ids_that_no_writer_has() -> None:
    """Whatever else is in it; a header of another form has no id."""
    contracts = load_event_contracts(
        [_pin(4)], None, [_schema(4, _ID), _schema(6, _AT)]
    )
    (event,) = (encode(contracts.writers[4], {"id": "a"}),)
    ids = [b"\0" + schema_id.to_bytes(4) + b"\2a" for schema_id in (5, 6, 5, 1 << 30)]
    others = [b"\0\0\0\0\0\2a", b"\0\xff\xff\xff\xff", b"\1\0\0\0\7", b"\0", b""]
    for payloads in ([event, *ids, *others, None], [*ids, *others, None]):
        decoded = contracts.decoder(["id"]).decode(pa.array(payloads, pa.binary()))
        assert {5, 6, 1 << 30} == decoded.unknown_ids
        assert {5, 1 << 30} == contracts.wanted_schemas(decoded.unknown_ids)
    decoded = contracts.decoder(["id"]).decode(pa.array([event, event]))
    assert not decoded.unknown_ids
    told = contracts.diagnose(ids[1])
    assert told is not None
    assert "id is not written" in told.detail


def test_a_pinned_schema_that_is_not_kept_is_told() -> None:
    """So it is if the home database is another one."""
    with pytest.raises(ContractError, match="CONTRACT_MISSING") as caught:
        load_event_contracts([_pin(4)])
    assert "home database" in caught.value.fix


def test_a_registry_without_a_pin_is_told() -> None:
    """A command that decodes cannot choose a version itself."""
    with pytest.raises(ContractError, match="CONTRACT_NOT_PINNED"):
        load_event_contracts(["registry"])


_MONEY: dict[str, Any] = {
    "type": "record",
    "name": "Money",
    "namespace": "common",
    "fields": [
        {"name": "amount", "type": "long"},
        {"name": "unit", "type": "Unit"},
        {"name": "plain", "type": ["null", "Bare"], "default": None},
    ],
}
_UNIT: dict[str, Any] = {
    "type": "enum",
    "name": "Unit",
    "namespace": "common",
    "symbols": ["EUR", "USD"],
}
_BARE: dict[str, Any] = {
    "type": "record",
    "name": "common.Bare",
    "fields": [{"name": "x", "type": "int"}],
}
_ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        _ID,
        {"name": "price", "type": "common.Money"},
        {"name": "paid", "type": ["null", "common.Money"], "default": None},
        {"name": "lines", "type": {"type": "array", "items": "common.Money"}},
        {
            "name": "inner",
            "type": {
                "type": "record",
                "name": "Inner",
                "fields": [{"name": "unit", "type": "common.Unit"}],
            },
        },
        {"name": "by", "type": {"type": "map", "values": "common.Unit"}},
    ],
}


def test_types_of_other_schemas_stand_at_their_first_use() -> None:
    """The whole is read as fastavro reads the parts, each under its own name."""
    parts = [_UNIT, _BARE, _MONEY]
    schema = RegisteredSchema(
        schema_id=5,
        kind="AVRO",
        text=json.dumps(_ORDER),
        references=tuple((one["name"], json.dumps(one)) for one in parts),
    )
    contracts = load_event_contracts([_pin(5)], None, [schema])
    named: dict[str, dict[Any, Any]] = {}
    for one in parts:
        fastavro.parse_schema(one, named_schemas=named)
    parsed = fastavro.parse_schema(_ORDER, named_schemas=named)
    money: dict[str, object] = {"amount": 7, "unit": "USD", "plain": {"x": 1}}
    record: dict[str, object] = {
        "id": "a",
        "price": money,
        "paid": None,
        "lines": [money, {**money, "plain": None}],
        "inner": {"unit": "EUR"},
        "by": {"k": "USD"},
    }
    body = io.BytesIO()
    fastavro.schemaless_writer(body, parsed, record)
    payload = b"\0" + (5).to_bytes(4) + body.getvalue()
    assert record == decode(payload, contracts.writers)
    assert payload == encode(contracts.each[0].contract, record)


def test_other_records_of_a_connector_are_written_by_what_writes_no_event() -> None:
    """Of a pinned envelope they are writers, whose records are skipped."""
    registered = (
        RegisteredSchema(schema_id=7, kind="AVRO", text=json.dumps(envelope())),
        RegisteredSchema(schema_id=8, kind="AVRO", text=json.dumps(HEARTBEAT)),
        _schema(9, _ID),
    )
    reference = f"debezium:{_pin(7)}"
    (found,) = load_event_contracts([reference], None, registered).each
    assert found.writers.keys() == {7, 8}
    assert not found.writers[8].fields
    assert "has the fields id" in found.unreadable[9]
