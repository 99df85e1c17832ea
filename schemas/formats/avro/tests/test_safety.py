"""A contract whose payloads could kill a decoder is refused when it is loaded."""

from __future__ import annotations

import pickle

import pytest

from tallyweir.schemas.errors import UnsafeContractError
from tallyweir.schemas.formats.avro.safety import NESTING_MAX, NODES_MAX, parse_schema


def record(*fields: object, name: str = "R") -> dict[str, object]:
    """A record of fields, given as types or as whole field objects."""
    return {
        "type": "record",
        "name": name,
        "fields": [
            field
            if isinstance(field, dict) and "name" in field and field["name"][0] == "f"
            else {"name": f"f{index}", "type": field}
            for index, field in enumerate(fields)
        ],
    }


def arrays(depth: int) -> object:
    """A type of ``depth`` arrays around an int."""
    kind: object = "int"
    for _ in range(depth):
        kind = {"type": "array", "items": kind}
    return kind


EMPTY = {"type": "record", "name": "Empty", "fields": []}
DECIMAL = {"type": "bytes", "logicalType": "decimal"}


@pytest.mark.parametrize(
    ("schema", "code"),
    [
        (record(["null", "R"]), "CONTRACT_RECURSIVE"),
        (record({"type": "array", "items": "R"}), "CONTRACT_RECURSIVE"),
        (
            record(record({"type": "map", "values": "R"}, name="I")),
            "CONTRACT_RECURSIVE",
        ),
        (record({"type": "array", "items": "null"}), "CONTRACT_ZERO_BYTE_TYPE"),
        (record({"type": "array", "items": EMPTY}), "CONTRACT_ZERO_BYTE_TYPE"),
        (record({"type": "map", "values": "null"}), "CONTRACT_ZERO_BYTE_TYPE"),
        (
            record(
                {"type": "array", "items": {"type": "fixed", "name": "Z", "size": 0}}
            ),
            "CONTRACT_ZERO_BYTE_TYPE",
        ),
        (record("null"), "CONTRACT_ZERO_BYTE_TYPE"),
        (record(EMPTY), "CONTRACT_ZERO_BYTE_TYPE"),
        (record(arrays(NESTING_MAX)), "CONTRACT_TOO_DEEP"),
        (record(arrays(900)), "CONTRACT_TOO_DEEP"),
        (record(*["int"] * NODES_MAX), "CONTRACT_TOO_LARGE"),
        (record({**DECIMAL, "precision": 1001}), "CONTRACT_DECIMAL_TOO_WIDE"),
        (record({**DECIMAL, "precision": 0}), "CONTRACT_DECIMAL_TOO_WIDE"),
        (record({**DECIMAL, "precision": 5, "scale": 6}), "CONTRACT_MALFORMED"),
        (record(DECIMAL), "CONTRACT_MALFORMED"),
        (
            record(
                {
                    "type": "fixed",
                    "name": "D",
                    "size": 2,
                    "logicalType": "decimal",
                    "precision": 5,
                }
            ),
            "CONTRACT_MALFORMED",
        ),
        (record(["null"]), "CONTRACT_UNION_UNSUPPORTED"),
        (record(["int"]), "CONTRACT_UNION_UNSUPPORTED"),
        (record([]), "CONTRACT_UNION_UNSUPPORTED"),
        (record(["null", "int", "null"]), "CONTRACT_UNION_UNSUPPORTED"),
        (record(["int", "string", "int"]), "CONTRACT_MALFORMED"),
        (record(["int", ["null", "string"]]), "CONTRACT_MALFORMED"),
        (record(["null", ["null", "int"]]), "CONTRACT_MALFORMED"),
        (
            record({"type": "long", "logicalType": "time-millis"}),
            "CONTRACT_TYPE_UNSUPPORTED",
        ),
        (
            record({"type": "string", "logicalType": "timestamp-micros"}),
            "CONTRACT_TYPE_UNSUPPORTED",
        ),
        (
            record({"type": "fixed", "name": "U", "size": 12, "logicalType": "uuid"}),
            "CONTRACT_TYPE_UNSUPPORTED",
        ),
        (record({"name": "f-1", "type": "int"}), "CONTRACT_FIELD_NAME"),
        (record({"name": "f" * 64, "type": "int"}), "CONTRACT_FIELD_NAME"),
        (record({"name": "fé", "type": "int"}), "CONTRACT_FIELD_NAME"),
        (record({"name": "f\n", "type": "int"}), "CONTRACT_FIELD_NAME"),
        (
            record({"name": "fa", "type": "int"}, {"name": "fA", "type": "int"}),
            "CONTRACT_MALFORMED",
        ),
        (record({"name": "f", "type": "int", "default": "x"}), "CONTRACT_MALFORMED"),
        (
            record({"name": "f", "type": ["int", "null"], "default": None}),
            "CONTRACT_MALFORMED",
        ),
        (record("strnig"), "CONTRACT_MALFORMED"),
        (record({"type": "enum", "name": "E", "symbols": []}), "CONTRACT_MALFORMED"),
        (
            record({"type": "enum", "name": "E", "symbols": ["A", "A"]}),
            "CONTRACT_MALFORMED",
        ),
        (record(5), "CONTRACT_MALFORMED"),
        (record(None), "CONTRACT_MALFORMED"),
        ({"type": "record", "name": "R"}, "CONTRACT_MALFORMED"),
        ({"type": "record", "fields": []}, "CONTRACT_MALFORMED"),
        ({}, "CONTRACT_MALFORMED"),
        ("string", "CONTRACT_NOT_A_RECORD"),
    ],
)
def test_each_unsafe_schema_is_refused_by_its_rule(schema: object, code: str) -> None:
    """The code names the rule, so that a runbook can."""
    with pytest.raises(UnsafeContractError) as caught:
        parse_schema(schema)
    assert caught.value.code == code


def test_a_schema_that_grows_when_names_resolve_is_refused_in_no_time() -> None:
    """The count is of resolved types and stops the walk, not the memory."""
    with pytest.raises(UnsafeContractError, match="CONTRACT_TOO"):
        parse_schema(growing(400))


def growing(fields: int) -> dict[str, object]:
    """A record that names another of many fields, many times."""
    wide = record(*["int"] * fields, name="Wide")
    return record(wide, *["Wide"] * fields)


def test_the_deepest_and_the_widest_safe_schemas_are_accepted() -> None:
    """The bounds themselves are allowed."""
    parse_schema(record(arrays(NESTING_MAX - 1)))
    assert len(parse_schema(record(*["int"] * (NODES_MAX - 1))).fields) == NODES_MAX - 1


def test_a_named_type_may_be_used_again_where_it_does_not_contain_itself() -> None:
    """Reuse is not recursion; a namespace is inherited."""
    inner = {**record("int", name="Inner"), "namespace": "a.b"}
    tree = parse_schema(
        record(inner, "a.b.Inner", {"type": "array", "items": "a.b.Inner"})
    )
    assert [field.name for field in tree.fields] == ["f0", "f1", "f2"]


def test_a_refusal_names_the_field_by_its_path() -> None:
    """In a large schema the reader must find the place."""
    schema = record(record({"type": "array", "items": "null"}, name="I"))
    with pytest.raises(UnsafeContractError, match=r"Field f0\.f0\[\]: null alone"):
        parse_schema(schema)


def test_all_faults_of_a_schema_are_one_error() -> None:
    """Each once, in the order of the fields; inside of a field as well."""
    inner = {
        "type": "record",
        "name": "Inner",
        "fields": [
            {"name": "a", "type": "money"},
            {"name": "b", "type": {"type": "enum", "name": "E", "symbols": []}},
        ],
    }
    fields = [
        {"name": "event-id", "type": "strin"},
        {"name": "at", "type": {"type": "int", "logicalType": "timestamp-millis"}},
        {"name": "one", "type": inner},
        {"name": "again", "type": "Inner"},
        {"name": "e", "type": "E"},
        {"name": "n", "type": "int", "default": "x"},
        {"name": "N", "type": "int"},
        {"name": "n", "type": ["int", "int"]},
        {"name": "u", "type": ["money", "null", {"type": "fixed"}, "int"]},
    ]
    with pytest.raises(UnsafeContractError) as caught:
        parse_schema({"type": "record", "name": "R", "fields": fields})
    assert [one.saw.partition(":")[0] for one in caught.value.faults] == [
        "Field 'event-id'",
        "Field event-id",
        "Field at",
        "Field one.a",
        "Field one.b",
        "Field n",
        "Field n",
        "Field u",
        "Field u",
    ]
    assert caught.value.code == "CONTRACT_FIELD_NAME"
    assert all(one.saw in caught.value.saw for one in caught.value.faults)
    again = pickle.loads(pickle.dumps(caught.value))
    assert [one.saw for one in again.faults] == [one.saw for one in caught.value.faults]


def test_a_schema_that_is_too_large_is_told_so_once() -> None:
    """What follows is too much as well."""
    fields = [{"name": f"f{n}", "type": "int"} for n in range(NODES_MAX + 9)]
    with pytest.raises(UnsafeContractError) as caught:
        parse_schema({"type": "record", "name": "R", "fields": fields})
    assert [one.code for one in caught.value.faults] == ["CONTRACT_TOO_LARGE"]
