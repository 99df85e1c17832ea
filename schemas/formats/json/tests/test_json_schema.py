"""The columns that a JSON Schema declares."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest
from jsonschema import Draft7Validator  # type: ignore[import-untyped]

from tallyweir.schemas.contract import DeclaredFields
from tallyweir.schemas.errors import ContractError
from tallyweir.schemas.event_contracts import load_event_contracts
from tallyweir.schemas.formats.json.json_schema import read_json_schema

Schema = dict[str, Any]
_ADDRESS = json.dumps(
    {
        "$id": "https://shop.example/address.json",
        "definitions": {"zip": {"type": ["string", "null"]}, "a/b": {"type": "number"}},
        "type": "object",
    }
)


def _columns(properties: Schema, **more: Schema) -> dict[str, str]:
    schema = {"type": "object", "properties": properties, **more}
    return read_json_schema(json.dumps(schema).encode(), [("address.json", _ADDRESS)])


@pytest.mark.parametrize(
    ("schema", "column"),
    [
        ({"type": "string"}, "text"),
        ({"type": "string", "format": "email", "maxLength": 5}, "text"),
        ({"type": "string", "format": "date-time"}, "timestamptz"),
        ({"type": ["string", "null"], "format": "date"}, "date"),
        ({"type": "string", "format": "uuid"}, "uuid"),
        ({"type": "integer", "minimum": 0}, "bigint"),
        ({"type": ["null", "number"]}, "numeric"),
        ({"type": ["integer", "number"]}, "numeric"),
        ({"type": "boolean"}, "boolean"),
        ({"type": "object", "properties": {"a": {}}}, "jsonb"),
        ({"type": "array", "items": True}, "jsonb"),
        ({"type": ["object", "array"]}, "jsonb"),
        ({"type": "string", "enum": ["a", "b"]}, "text"),
        ({"type": "string", "oneOf": [{"format": "date"}, {"pattern": "x"}]}, "text"),
        ({"enum": ["a", "b", None]}, "text"),
        ({"enum": [1, 2.0, 3e2]}, "bigint"),
        ({"enum": [1, 2.5]}, "numeric"),
        ({"const": True}, "boolean"),
        ({"const": {"a": 1}}, "jsonb"),
        ({"oneOf": [{"type": "null"}, {"type": "string"}]}, "text"),
        ({"anyOf": [{"const": "a"}, {"const": "b", "title": "B"}]}, "text"),
        ({"allOf": [{"$ref": "#/definitions/t"}], "description": "d"}, "timestamptz"),
        ({"$ref": "#/definitions/t", "title": "When"}, "timestamptz"),
        ({"$ref": "#/definitions/again"}, "timestamptz"),
        ({"$ref": "address.json"}, "jsonb"),
        ({"$ref": "https://shop.example/address.json#"}, "jsonb"),
        ({"$ref": "address.json#/definitions/zip"}, "text"),
        ({"$ref": "address.json#/definitions/a~1b"}, "numeric"),
    ],
)
def test_a_property_that_says_its_one_type_is_a_column(
    schema: Schema, column: str
) -> None:
    """However it says it."""
    definitions = {
        "t": {"type": "string", "format": "date-time"},
        "again": {"$ref": "#/definitions/t"},
    }
    assert {"a": column} == _columns({"a": schema}, definitions=definitions)


@pytest.mark.parametrize(
    ("schema", "seen"),
    [
        ({"type": ["string", "integer"]}, "several types: bigint, text"),
        ({"anyOf": [{"type": "string"}, {"type": "object"}]}, "jsonb, text"),
        ({"enum": [1, "a"]}, "several types: bigint, text"),
        ({"type": "null"}, "no value but null"),
        ({"type": "int"}, 'has the type "int"'),
        ({}, "does not say its type"),
        ({"description": "d", "minimum": 1}, "does not say its type"),
        ({"oneOf": []}, "by oneOf alone"),
        ({"oneOf": [{}], "anyOf": [{}]}, "by oneOf alone"),
        (True, "is true, which says no type"),
        ({"$ref": "#/definitions/none"}, "which is not in the schema"),
        ({"$ref": "other.json"}, "which is not in the schema"),
        ({"$ref": "#anchor"}, "which is not in the schema"),
        ({"$ref": "#/properties/a"}, "refers to itself"),
        ({"anyOf": [{"$ref": "#/properties/a"}]}, "refers to itself"),
        ({"$ref": "address.json", "type": "object"}, "has type beside $ref"),
    ],
)
def test_a_property_without_one_type_is_told_with_all_others(
    schema: Schema | bool,  # noqa: FBT001 - it is a schema
    seen: str,
) -> None:
    """Nothing is guessed, and the fix is to name the columns."""
    properties = {"a": schema, "b": {"type": "string"}, "order-id": {"type": "string"}}
    with pytest.raises(ContractError) as caught:
        _columns(properties)
    first, second = caught.value.faults
    assert first.saw.startswith("The property a ")
    assert seen in first.saw
    assert "'order-id' cannot be the name" in second.saw
    assert "source.fields" in first.fix


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ('{"type": "string"}', 'is of type "string", not an object'),
        ('{"type": "object"}', "has no properties"),
        ('{"oneOf": [{"type": "object"}]}', "has no properties"),
        ('{"properties": {"a": {"const": 1}}, "allOf": [{"$ref": "#"}]}', "in allOf"),
        ('{"$ref": "#/$defs/a"}', "which is not in the schema"),
        ("[]", "not a JSON object"),
        ('{"a": 1, "a": 1}', "not a JSON object"),
        ("{", "not a JSON object"),
        ("", "not a JSON object"),
    ],
)
def test_what_is_no_schema_of_one_object_is_refused(text: str, seen: str) -> None:
    """There would be no columns, or not all of them."""
    with pytest.raises(ContractError) as caught:
        read_json_schema(text.encode())
    assert seen in str(caught.value)


def test_alternatives_within_alternatives_take_no_time() -> None:
    """Each schema is looked at once, and none leads too deep."""
    definitions: Schema = {"n40": {"type": "string"}}
    for level in range(40):
        inner = {"$ref": f"#/definitions/n{level + 1}"}
        definitions[f"n{level}"] = {"anyOf": [inner] * 20}
    found = _columns({"a": {"$ref": "#/definitions/n0"}}, definitions=definitions)
    assert {"a": "text"} == found


# --- Against the reference ------------------------------------------------------------

_VALUES: dict[str, list[Any]] = {
    "text": ["", "a", "Ä"],
    "bigint": [0, -5, 3.0, 9_007_199_254_740_993],
    "numeric": [0, 1.5, -2, 1e-9, 123456789012345678901234567890],
    "boolean": [True, False],
    "jsonb": [{}, {"x": [1]}, []],
}
_TYPES: dict[str, list[Schema]] = {
    "text": [{"type": "string"}, {"enum": _VALUES["text"]}],
    "bigint": [{"type": "integer"}],
    "numeric": [{"type": "number"}],
    "boolean": [{"type": "boolean"}, {"enum": [True, False]}],
    "jsonb": [
        {"type": ["object", "array"]},
        {"anyOf": [{"type": "array"}, {"type": "object"}]},
    ],
}


class _Made:
    """A schema by chance, and documents for it.

    Attributes:
        kinds: The column of each property.
        nullable: The properties that may be null.
        required: The properties that must be there.
    """

    def __init__(self, source: random.Random) -> None:
        self._source = source
        self._definitions: Schema = {}
        names = [f"p{number}" for number in range(source.randint(1, 5))]
        self.kinds = {name: source.choice(list(_TYPES)) for name in names}
        self.nullable = {name for name in names if source.random() < 0.5}
        self.required = {name for name in names if source.random() < 0.5}
        self.schema = {
            "type": "object",
            "required": sorted(self.required),
            "properties": {name: self._property(name) for name in names},
            "definitions": self._definitions,
        }

    def _property(self, name: str) -> Schema:
        schema = self._source.choice(_TYPES[self.kinds[name]])
        if name in self.nullable:
            schema = self._with_null(schema)
        for level in range(self._source.randint(0, 3)):
            schema = self._wrapped(schema, f"{name}_{level}")
        return schema

    def _with_null(self, schema: Schema) -> Schema:
        given = schema.get("type")
        if given is not None and self._source.random() < 0.5:
            types = given if isinstance(given, list) else [given]
            return {**schema, "type": ["null", *types]}
        null = self._source.choice([{"type": "null"}, {"const": None}])
        return {self._source.choice(["oneOf", "anyOf"]): [schema, null]}

    def _wrapped(self, schema: Schema, name: str) -> Schema:
        if self._source.random() < 0.5:
            return {self._source.choice(["oneOf", "anyOf", "allOf"]): [schema]}
        self._definitions[name] = schema
        return {"$ref": f"#/definitions/{name}", "title": name}

    def document(self) -> Schema:
        found: Schema = {}
        for name, right in self.kinds.items():
            is_other = self._source.random() < 0.1
            kind = self._source.choice(list(_TYPES)) if is_other else right
            if self._source.random() < 0.8:
                found[name] = self._source.choice([*_VALUES[kind], None])
        return found

    def leniently(self, document: Schema) -> Schema:
        """Make the same what columns do not tell apart, or tell more strictly.

        A missing value is null, ``jsonb`` holds any value, and a ``bigint`` has an end.
        """
        found = {name: one for name, one in document.items() if one is not None}
        for name, kind in self.kinds.items():
            if kind == "jsonb" and name in found:
                found[name] = {}
            if kind == "bigint" and found.get(name) == _VALUES["numeric"][-1]:
                found[name] = {}
        missing = self.required & self.nullable
        return {**dict.fromkeys(missing), **found}


@pytest.mark.parametrize("seed", range(60))
def test_a_document_is_an_event_if_its_types_are_those_of_the_schema(
    seed: int,
) -> None:
    """By the reference implementation."""
    made = _Made(random.Random(seed))
    columns = read_json_schema(json.dumps(made.schema).encode())
    for name, kind in made.kinds.items():
        is_required = name in made.required - made.nullable
        assert columns[name] == kind + " not null" * is_required, made.schema
    declared = DeclaredFields(fields=columns, unknown="ignore")
    contracts = load_event_contracts([declared.reference])
    documents = [made.document() for _ in range(100)]
    payloads = [json.dumps(one).encode() for one in documents]
    decoded = contracts.decoder(list(columns)).decode(pa.array(payloads))
    validator = Draft7Validator(made.schema)
    for row, document in enumerate(documents):
        is_valid = validator.is_valid(made.leniently(document))
        assert decoded.is_event[row] == is_valid, (made.schema, document)
        error = contracts.diagnose(payloads[row])
        assert (error is None) == is_valid, (made.schema, document, error)
        if not is_valid:
            continue
        for name, kind in made.kinds.items():
            found = decoded.columns[name][row].as_py()
            assert _as_read(found, kind) == document.get(name), (name, document)


def _as_read(found: object, kind: str) -> object:
    if not isinstance(found, str) or kind == "text":
        return found
    return json.loads(found)
