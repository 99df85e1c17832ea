"""The contract of new events of a topic behind a schema registry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tallyweir.schemas.codec import decode, encode
from tallyweir.schemas.contract import Contract
from tallyweir.schemas.errors import ContractError
from tallyweir.services.ingest.served_topics import read_served_topics
from tallyweir.services.produce.source_section import read_source_section
from tallyweir.services.produce.written_contract import load_written_contract
from tallyweir.sinks.protocol.errors import ConfigurationError, RetryableError
from tallyweir.sinks.registry_client import URL_VARIABLE
from tallyweir.sinks.testing.fake_registry import FakeRegistry, fake_registry

_AVRO = """\
source:
  topic: [eu, us]
  schema: registry
  subject: orders
  event_id: order_id
"""
_JSON = """\
source:
  topic: [eu, us]
  format: json
  schema: registry
  fields: {order_id: text not null, amount: integer}
  event_id: order_id
"""
_ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "order_id", "type": "string"},
        {"name": "amount", "type": "int"},
    ],
}
_RECORD: dict[str, object] = {"order_id": "a", "amount": 7}


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRegistry]:
    """A registry without schemas, of which the process is told."""
    with fake_registry() as fake:
        monkeypatch.setenv(URL_VARIABLE, fake.url)
        yield fake


def _register(
    registry: FakeRegistry, subject: str, schema_id: int, kind: str = "AVRO"
) -> None:
    found = {"subject": subject, "version": 3, "id": schema_id, "schemaType": kind}
    schema = json.dumps(_ORDER if kind == "AVRO" else {"type": "object"})
    path = f"/subjects/{subject}/versions/latest"
    registry.answers[path] = (200, {**found, "schema": schema})


def _load(folder: Path, text: str, topic: str = "eu") -> Contract:
    path = folder / "orders.yaml"
    path.write_text(text)
    section = read_source_section(path)
    (schema,) = section.schemas
    return load_written_contract(section, schema=schema, topic=topic, path=path)


def test_values_have_the_id_of_the_subject_that_the_pipeline_names(
    tmp_path: Path, registry: FakeRegistry
) -> None:
    """As its own consumers, and all others, look it up."""
    _register(registry, "orders", 17)
    contract = _load(tmp_path, _AVRO)
    payload = encode(contract, _RECORD)
    assert b"\0\0\0\0\x11\x02a\x0e" == payload
    assert _RECORD == decode(payload, {17: contract})
    assert "orders.v3" == contract.reference


def test_documents_have_the_id_of_their_topics_subject(
    tmp_path: Path, registry: FakeRegistry
) -> None:
    """Also those that come over HTTP, of each topic its own."""
    _register(registry, "eu-value", 17, "JSON")
    _register(registry, "us-value", 18, "JSON")
    contract = _load(tmp_path, _JSON)
    document = b'{"order_id":"a","amount":7}'
    assert b"\0\0\0\0\x11" + document == encode(contract, _RECORD)
    served = read_served_topics([tmp_path / "orders.yaml"])
    assert {"eu": 17, "us": 18} == {
        name: topic.encode(topic.read_json(_RECORD))[4]
        for name, topic in served.items()
    }


@pytest.mark.parametrize(
    ("more", "named", "indexes"),
    [("", "registry", b"\0"), ("message Payment {}", "registry#Order", b"\2\2")],
)
def test_messages_have_the_indexes_of_the_one_that_the_pipeline_names(
    tmp_path: Path, registry: FakeRegistry, more: str, named: str, indexes: bytes
) -> None:
    """Without a name it is the only one."""
    order = "message Order { string order_id = 1; int32 amount = 2; }"
    found = {"subject": "orders", "version": 3, "id": 17, "schemaType": "PROTOBUF"}
    schema = f'syntax = "proto3"; {more} {order}'
    path = "/subjects/orders/versions/latest"
    registry.answers[path] = (200, {**found, "schema": schema})
    written = f"format: protobuf\n  schema: {named}"
    contract = _load(tmp_path, _AVRO.replace("schema: registry", written))
    payload = encode(contract, _RECORD)
    assert b"\0\0\0\0\x11" + indexes + b"\n\1a\x10\7" == payload
    assert _RECORD == decode(payload, {17: contract})


@pytest.mark.parametrize("text", [_AVRO, _JSON])
def test_nothing_is_sent_under_an_id_that_the_registry_does_not_have(
    tmp_path: Path, registry: FakeRegistry, text: str
) -> None:
    """It is the producer's work to register a schema."""
    with pytest.raises(ConfigurationError, match="SUBJECT_MISSING"):
        _load(tmp_path, text)
    registry.answers[
        f"/subjects/{'orders' if text == _AVRO else 'eu-value'}/versions/latest"
    ] = (503, "busy")
    with pytest.raises(RetryableError, match="REGISTRY_UNAVAILABLE"):
        _load(tmp_path, text)


def test_documents_are_not_sent_under_the_id_of_another_kind(
    tmp_path: Path, registry: FakeRegistry
) -> None:
    """Other consumers would read them as that."""
    _register(registry, "eu-value", 17)
    with pytest.raises(ContractError, match="CONTRACT_KIND"):
        _load(tmp_path, _JSON)
