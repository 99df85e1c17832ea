"""The document says what the service does, and to nobody more than he may know."""

from __future__ import annotations

import json
import re

import pytest

from tallyweir.schemas.formats.avro.safety import parse_schema
from tallyweir.schemas.tests.strategies import NESTED
from tallyweir.services.ingest.openapi import (
    describe_service,
    event_schema,
    render_page,
)
from tallyweir.services.ingest.scoped_ids import name_event
from tallyweir.services.ingest.tests.served import BY_FIELD, page_view


def id_pattern(prefix: str) -> str:
    """What the document says of the field that holds the ID."""
    document = json.loads(json.dumps(describe_service([BY_FIELD], prefix)))
    body = document["paths"]["/v1/events/views"]["post"]["requestBody"]
    event = body["content"]["application/json"]["schema"]["oneOf"][0]
    pattern = event["properties"]["event_id"]["pattern"]
    assert isinstance(pattern, str)
    return pattern


@pytest.mark.parametrize("prefix", ["shop:", "", "a.b*^[x]\\-", "p$ "])
def test_an_id_of_the_documents_pattern_is_in_scope(prefix: str) -> None:
    """Also where the prefix holds signs that patterns use."""
    pattern = id_pattern(prefix)
    assert re.search(pattern, prefix + "1")
    assert not re.search(pattern, prefix)
    if prefix:
        assert not re.search(pattern, "z" + prefix + "1")
    longest = prefix.ljust(256, "1")
    assert re.search(pattern, longest)
    assert not re.search(pattern, longest + "1")
    record = BY_FIELD.read_json(page_view(longest))
    named = name_event(BY_FIELD, prefix, record, attributes=None, idempotency_key=None)
    assert named.event_id == longest


def test_without_a_key_no_topic_is_named() -> None:
    """Neither in the document nor on the page."""
    document = describe_service([])
    assert "views" not in json.dumps(document) + render_page(document)


def test_nested_contracts_are_described_whole() -> None:
    """Arrays, maps, records, enums and what may be null."""
    schema = event_schema(NESTED.tree)
    assert schema["required"] == ["id", "tags", "counts", "place"]
    properties = schema["properties"]
    assert isinstance(properties, dict)
    assert properties["tags"]["items"]["anyOf"][0] == {"type": "null"}
    assert properties["counts"]["additionalProperties"]["minimum"] == -(1 << 31)
    assert properties["place"]["properties"]["kind"]["enum"] == ["A", "B"]


def test_a_union_is_described_by_its_branches() -> None:
    """As ``json_records`` reads it; texts have their formats."""
    duration = {"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"}
    token = {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}
    fields = [
        {"name": "u", "type": ["null", "boolean", duration]},
        {"name": "token", "type": token},
    ]
    schema = event_schema(
        parse_schema({"type": "record", "name": "R", "fields": fields})
    )

    def branch(name: str, kind: object) -> object:
        return {
            "type": "object",
            "properties": {name: kind},
            "required": [name],
            "additionalProperties": False,
        }

    assert schema["properties"] == {
        "u": {
            "anyOf": [
                {"type": "null"},
                branch("boolean", {"type": "boolean"}),
                branch("D", {"type": "string", "format": "duration"}),
            ]
        },
        "token": {"type": "string", "format": "uuid"},
    }
