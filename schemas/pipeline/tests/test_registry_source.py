"""Sources whose contract a schema registry has."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tallyweir.schemas.codec import decode, encode
from tallyweir.schemas.errors import ContractError
from tallyweir.schemas.event_contracts import load_event_contracts
from tallyweir.schemas.pipeline import (
    Pipeline,
    PipelineError,
    from_json,
    load_pipeline,
    pipeline_definition_json,
)
from tallyweir.schemas.registered_contract import Pin
from tallyweir.sinks.protocol.registered_schema import RegisteredSchema

_VALID = """\
pipeline: orders
source:
  topic: orders
  schema: registry
  event_id: order_id
  event_time: placed_at
  watermark_delay: 1 hour
outputs:
  - append: {table: orders, columns: [order_id, customer_id]}
"""
_JSON = """\
  format: json
  schema: registry
  fields: {order_id: text, customer_id: bigint, placed_at: timestamptz}
"""


def _load(directory: Path, old: str = "", new: str = "") -> Pipeline:
    file = directory / "orders.yaml"
    file.write_text(_VALID.replace(old, new))
    return load_pipeline(file)


@pytest.mark.parametrize(
    ("new", "subject"),
    [
        ("  schema: registry\n", "orders-value"),
        ("  schema: registry\n  subject: all\n", "all"),
        (_JSON, None),
        ("  format: json\n  unknown: rest\n  schema: registry\n", "orders-value"),
        ("  schema: registry\n  envelope: debezium\n", "orders-value"),
        ("  format: protobuf\n  schema: registry\n", "orders-value"),
        ("  format: protobuf\n  schema: registry#Order\n", "orders-value"),
    ],
)
def test_the_subject_is_that_of_the_topic_unless_it_is_named(
    tmp_path: Path, new: str, subject: str | None
) -> None:
    """Named fields need none."""
    pipeline = _load(tmp_path, "  schema: registry\n", new)
    assert subject == pipeline.source.wanted_subject
    assert pipeline == from_json(pipeline_definition_json(pipeline))


@pytest.mark.parametrize(
    ("old", "new", "seen"),
    [
        ("schema: registry", "schema: [registry, a.v1.avsc]", "a.v1.avsc"),
        ("topic: orders", "topic: [orders, more]", "'subject' is missing"),
        (
            "schema: registry",
            "schema: flight_departure.v1\n  subject: s",
            "a subject",
        ),
        (
            "  schema: registry\n",
            f"{_JSON}  subject: s\n",
            "a subject",
        ),
        (
            "schema: registry",
            "format: json\n  envelope: debezium\n  schema: registry",
            "'fields' is missing",
        ),
        (
            "schema: registry",
            "format: json\n  schema: [a.schema.json, b.schema.json]",
            "a.schema.json, b.schema.json",
        ),
        ("schema: registry", "schema: registry#Order", "format avro"),
        ("schema: registry", "format: protobuf\n  schema: a.avsc", "format protobuf"),
        ("schema: registry", "schema: registry\n  fields: {a: text}", "has fields"),
    ],
)
def test_what_does_not_go_with_a_registry_is_told(
    tmp_path: Path, old: str, new: str, seen: str
) -> None:
    """Before anything is asked."""
    with pytest.raises(PipelineError) as caught:
        _load(tmp_path, old, new)
    assert seen in str(caught.value)


@pytest.mark.parametrize("unknown", ["", "  unknown: rest\n"])
def test_a_schema_of_documents_gives_the_columns(tmp_path: Path, unknown: str) -> None:
    """From a file as from a registry; the ledger's definition says which, and all."""
    properties = {"order_id": {"type": "string"}, "customer_id": {"type": "integer"}}
    moment = {"type": "string", "format": "date-time"}
    schema = {"type": "object", "properties": {**properties, "placed_at": moment}}
    (tmp_path / "orders.v2.schema.json").write_text(json.dumps(schema))
    new = f"  format: json\n  schema: orders.v2.schema.json\n{unknown}"
    pipeline = _load(tmp_path, "  schema: registry\n", new)
    assert pipeline == from_json(pipeline_definition_json(pipeline))
    (one,) = load_event_contracts(pipeline.source.schemas, tmp_path).each
    assert "orders.v2" == one.contract.reference

    pin = Pin(subject="orders-value", version=3, schema_id=17)
    kept = RegisteredSchema(schema_id=17, kind="JSON", text=json.dumps(schema))
    source = replace(pipeline.source, schema=pin.reference)
    pinned = replace(pipeline, source=source)
    assert pinned == from_json(pipeline_definition_json(pinned))
    assert (pin,) == tuple(map(Pin.of, source.schemas))
    (other,) = load_event_contracts(source.schemas, tmp_path, [kept]).each
    assert one.contract.fields == other.contract.fields
    rest = ["rest"] if unknown else []
    names = ["order_id", "customer_id", "placed_at", *rest]
    assert names == [field.name for field in other.contract.fields]
    record: dict[str, object] = dict.fromkeys(names) | {"order_id": "a"}
    payload = encode(other.contract, record)
    assert b"\0\0\0\0\x11{" == payload[:6]
    assert record == decode(payload, other.writers)

    avro = replace(kept, kind="AVRO")
    with pytest.raises(ContractError, match="CONTRACT_KIND"):
        load_event_contracts(source.schemas, tmp_path, [avro])
    with pytest.raises(ContractError, match="CONTRACT_KIND"):
        load_event_contracts([pin.reference], tmp_path, [kept])


def test_all_that_a_schema_leaves_open_is_told_with_the_line(tmp_path: Path) -> None:
    """Before anything starts."""
    schema = {"type": "object", "properties": {"order_id": {}, "placed_at": {}}}
    (tmp_path / "orders.v1.schema.json").write_text(json.dumps(schema))
    new = "  format: json\n  schema: orders.v1.schema.json\n"
    with pytest.raises(PipelineError) as caught:
        _load(tmp_path, "  schema: registry\n", new)
    told = str(caught.value)
    for name in ("order_id", "placed_at"):
        assert f"The property {name} does not say its type" in told
    assert "orders.yaml:5" in told


@pytest.mark.parametrize(
    ("schema", "framing"),
    [
        ("registry:orders-value:3:17", "confluent"),
        (("orders.v1.avsc", "items.v1.avsc"), "raw"),
        ("orders.v1.avsc", "single_object"),
    ],
)
def test_an_envelope_around_avro_is_part_of_the_reference_to_its_contract(
    tmp_path: Path, schema: str | tuple[str, ...], framing: str
) -> None:
    """So the ledger's definition keeps it, and a pinned version is still a pin."""
    plain = _load(tmp_path)
    source = replace(plain.source, schema=schema, framing=framing, envelope="debezium")
    pipeline = replace(plain, source=source)
    definition = pipeline_definition_json(pipeline)
    assert "envelope" not in definition["source"]
    assert all(one.startswith("debezium:") for one in source.schemas)
    assert pipeline == from_json(definition)
    pins = [Pin.of(one) for one in source.schemas]
    assert (pins[0] is not None) == (framing == "confluent")


def test_an_envelope_is_read_in_json_and_avro_only(tmp_path: Path) -> None:
    """And no other envelope is known."""
    for envelope, form in (("debezium", "protobuf"), ("cloudevents", "avro")):
        with pytest.raises(PipelineError, match="Envelopes are read in JSON"):
            _load(
                tmp_path,
                "schema: registry",
                f"schema: registry\n  format: {form}\n  envelope: {envelope}",
            )


_LOOKED_UP = """\
enrich:
  - topic: shop.public.customers
    fields: {row.id: bigint, row.name: text}
    envelope: debezium
    on: {customer_id: id}
    select: {customer: name}
outputs:
"""


def test_a_lookup_of_changes_is_told_by_its_fields_or_its_schema(
    tmp_path: Path,
) -> None:
    """The operation is read in any case, because it says what was deleted."""
    (by_fields,) = _load(tmp_path, "outputs:\n", _LOOKED_UP).enrich
    assert by_fields.wanted_subject is None
    (one,) = load_event_contracts([by_fields.reference]).each
    assert {"id", "name", "op"} == {field.name for field in one.contract.fields}

    fields = "    fields: {row.id: bigint, row.name: text}\n"
    by_schema = _LOOKED_UP.replace(fields, "    schema: registry\n")
    pipeline = _load(tmp_path, "outputs:\n", by_schema)
    assert "shop.public.customers-value" == pipeline.enrich[0].wanted_subject
    assert "debezium:registry" == pipeline.enrich[0].reference
    assert pipeline == from_json(pipeline_definition_json(pipeline))


@pytest.mark.parametrize(
    ("old", "new", "seen"),
    [
        ("envelope: debezium", "envelope: cloudevents", "The envelope is"),
        ("topic: shop.public.customers", "table: customers", "has a fields"),
        ("    fields", "    schema: a.v1.avsc\n    fields", "has a schema"),
        ("name}", "nam}", "There is no column 'nam'"),
        ("row.name: text", "row.name: txt", "txt"),
    ],
)
def test_what_does_not_go_with_a_lookup_of_changes_is_refused(
    tmp_path: Path, old: str, new: str, seen: str
) -> None:
    """Each mistake is told before anything starts."""
    with pytest.raises(PipelineError, match=seen):
        _load(tmp_path, "outputs:\n", _LOOKED_UP.replace(old, new))
