"""A pair is called compatible only when real resolution can read it."""

from __future__ import annotations

import io
import random
from typing import cast

import fastavro
import pytest

from tallyweir.schemas.formats.avro.compatibility import find_incompatibilities
from tallyweir.schemas.formats.avro.safety import parse_schema

Json = dict[str, object]


def record(*fields: object, name: str = "R", **more: object) -> Json:
    """A record of field objects."""
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(kind: object, name: str = "f", **more: object) -> Json:
    """A field of a type."""
    return {"name": name, "type": kind, **more}


def enum(*symbols: str, **more: object) -> Json:
    """An enum of symbols."""
    return {"type": "enum", "name": "E", "symbols": list(symbols), **more}


MICROS = {"type": "long", "logicalType": "timestamp-micros"}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}


def decimal(precision: int, scale: int) -> Json:
    """A decimal in bytes."""
    return {
        "type": "bytes",
        "logicalType": "decimal",
        "precision": precision,
        "scale": scale,
    }


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        ("int", "long"),
        ("int", "float"),
        ("int", "double"),
        ("long", "float"),
        ("long", "double"),
        ("float", "double"),
        ("string", "bytes"),
        ("int", ["null", "long"]),
        (["null", "int"], ["long", "null"]),
        (enum("A", "B"), enum("B", "C", "A")),
        (enum("A", "B"), enum("A", "X", default="X")),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "double"}),
        ({"type": "map", "values": "int"}, {"type": "map", "values": "long"}),
        ({"type": "string", "logicalType": "uuid"}, "string"),
        (decimal(5, 2), decimal(5, 2)),
        (
            {"type": "fixed", "name": "Old", "size": 2},
            {"type": "fixed", "name": "New", "size": 2, "aliases": ["Old"]},
        ),
    ],
)
def test_a_widened_type_reads_what_was_written(writer: object, reader: object) -> None:
    """Avro's promotions, and null added to a union."""
    assert differences(writer, reader) == []


def differences(writer: object, reader: object) -> list[str]:
    """What stands between two types of the field ``f``."""
    return find_incompatibilities(
        parse_schema(record(field(reader))), parse_schema(record(field(writer)))
    )


@pytest.mark.parametrize(
    ("writer", "reader", "clause"),
    [
        ("long", "int", "f is written as long and read as int"),
        ("double", "float", "f is written as double and read as float"),
        ("int", "string", "f is written as int and read as string"),
        ("bytes", "string", "f is written as bytes and read as string"),
        (["null", "int"], "int", "f may be null when written"),
        (MILLIS, MICROS, "written as timestamp-millis and read as timestamp-micros"),
        (MICROS, "long", "written as timestamp-micros and read as long"),
        (decimal(5, 2), decimal(6, 2), "decimal(5,2) and read as decimal(6,2)"),
        (decimal(5, 2), decimal(5, 1), "decimal(5,2) and read as decimal(5,1)"),
        (enum("A", "B"), enum("A"), "f may be written as B"),
        (
            {"type": "fixed", "name": "F", "size": 2},
            {"type": "fixed", "name": "F", "size": 3},
            "fixed(2) and read as fixed(3)",
        ),
        (
            {"type": "array", "items": "long"},
            {"type": "array", "items": "int"},
            "f[] is written as long",
        ),
        (
            record(field("long", "x"), name="I"),
            record(field("int", "x"), name="I"),
            "f.x is written as long",
        ),
        (
            record(field("int", "x"), name="I"),
            record(field("int", "x"), name="J"),
            "f is written as I and read as J",
        ),
    ],
)
def test_a_type_that_would_lose_or_misread_is_a_difference(
    writer: object, reader: object, clause: str
) -> None:
    """The clause names the field and both types."""
    assert any(clause in entry for entry in differences(writer, reader))


@pytest.mark.parametrize(
    ("reader", "expected"),
    [
        (record(field("int"), field("int", "g", default=1)), []),
        (
            record(field("int"), field("int", "g")),
            ["g is not written and has no default"],
        ),
        (record(field("int", "g", aliases=["f"])), []),
        (record(field("int"), name="S"), ["the event is written as R and read as S"]),
        (record(field("int"), name="S", aliases=["R"]), []),
        (record(field("int"), namespace="a.b"), []),
    ],
)
def test_fields_match_by_name_alias_or_default(
    reader: Json, expected: list[str]
) -> None:
    """Avro's rules for records; namespaces do not matter."""
    writer = parse_schema(record(field("int")))
    assert find_incompatibilities(parse_schema(reader), writer) == expected


VALUES: dict[str, list[object]] = {
    "boolean": [True],
    "int": [0, -(1 << 31), (1 << 31) - 1],
    "long": [0, -(1 << 63), (1 << 63) - 1],
    "float": [0.0, 1.5],
    "double": [0.0, 1e300],
    "string": ["", "ä"],
    "bytes": [b"", b"\xff"],
}
KINDS: list[object] = [
    *VALUES,
    MICROS,
    MILLIS,
    enum("A", "B"),
    enum("B"),
    enum("A", default="A"),
    enum("C", "B", "A"),
]


def random_type(source: random.Random) -> object:
    """A type, maybe nullable, in an array or in a map."""
    kind = source.choice(KINDS)
    form = source.randrange(6)
    if form == 0:
        return {"type": "array", "items": kind}
    if form == 1:
        return {"type": "map", "values": kind}
    if form == 2:
        return ["null", kind]
    return kind


def random_value(source: random.Random, kind: object) -> object:
    """A value of a type."""
    if isinstance(kind, list):
        return source.choice([None, random_value(source, kind[1])])
    if isinstance(kind, str):
        return source.choice(VALUES[kind])
    assert isinstance(kind, dict)
    match kind["type"]:
        case "array":
            return [random_value(source, kind["items"])]
        case "map":
            return {"k": random_value(source, kind["values"])}
        case "enum":
            return source.choice(kind["symbols"])
        case _:
            return 0


@pytest.mark.parametrize("seed", range(5))
def test_whatever_is_called_compatible_resolves_for_real(seed: int) -> None:
    """Over 2,000 random pairs a seed, fastavro reads each pair we allow."""
    source = random.Random(seed)
    allowed = 0
    for _ in range(2_000):
        kinds = [random_type(source) for _ in range(2)]
        if source.random() < 0.5:
            kinds[1] = kinds[0]
        writer = record(field(kinds[0]), field("int", "g"))
        reader = record(
            field(kinds[1], "h", aliases=["f"])
            if source.random() < 0.3
            else field(kinds[1]),
            field(*source.choice([("int", "g"), ("long", "g")])),
            field("string", "new", default="d"),
        )
        if find_incompatibilities(parse_schema(reader), parse_schema(writer)):
            continue
        allowed += 1
        resolve(writer, reader, {"f": random_value(source, kinds[0]), "g": 3})
    assert allowed > 500


def resolve(writer: Json, reader: Json, value: Json) -> Json:
    """Write by one schema and read by the other, as fastavro does it."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(writer), value)
    stream.seek(0)
    read = fastavro.schemaless_reader(
        stream, fastavro.parse_schema(writer), fastavro.parse_schema(reader)
    )
    return cast(Json, read)
