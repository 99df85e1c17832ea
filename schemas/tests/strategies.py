"""Hypothesis strategies for contracts and for records that fit them."""

from __future__ import annotations

import datetime as dt
import json
import re
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

from hypothesis import strategies as st

from tallyweir.schemas.contract import Contract, list_fields
from tallyweir.schemas.event_contracts import EventContract, EventContracts
from tallyweir.schemas.formats.avro.avro_format import Avro
from tallyweir.schemas.formats.avro.compatibility import find_incompatibilities
from tallyweir.schemas.formats.avro.safety import parse_schema

Json = dict[str, object]

FIRST = dt.datetime(1, 1, 2, tzinfo=dt.UTC)
LAST = dt.datetime(9999, 12, 30, tzinfo=dt.UTC)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
ints = st.integers(-(1 << 31), (1 << 31) - 1)
longs = st.integers(-(1 << 63), (1 << 63) - 1) | st.sampled_from(
    [
        sign * (1 << bits) + step
        for bits in range(63)
        for sign in (1, -1)
        for step in (-1, 0)
    ]
)
instants = st.datetimes(
    FIRST.replace(tzinfo=None), LAST.replace(tzinfo=None), timezones=st.just(dt.UTC)
)
locals_ = st.datetimes(FIRST.replace(tzinfo=None), LAST.replace(tzinfo=None))


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    """Decimals of all magnitudes that the type holds, at its own scale."""
    highest = 10**precision - 1
    edges = [
        value
        for bits in range(127)
        for value in (1 << bits, (1 << bits) - 1, -(1 << bits), -(1 << bits) - 1)
        if abs(value) <= highest
    ]
    unscaled = st.integers(-highest, highest) | st.sampled_from(edges)
    return unscaled.map(
        lambda value: Decimal((value < 0, tuple(map(int, str(abs(value)))), -scale))
    )


# Each flat type with the values that fit it.
FLAT_TYPES: list[tuple[object, st.SearchStrategy[object]]] = [
    ("boolean", st.booleans()),
    ("int", ints),
    ("long", longs),
    ("float", st.floats(width=32, allow_nan=False)),
    ("double", st.floats(allow_nan=False)),
    ("string", texts),
    ("bytes", st.binary(max_size=200)),
    ({"type": "fixed", "name": "F", "size": 3}, st.binary(min_size=3, max_size=3)),
    (
        {"type": "enum", "name": "E", "symbols": [f"S{i}" for i in range(200)]},
        st.integers(0, 199).map(lambda i: f"S{i}"),
    ),
    ({"type": "int", "logicalType": "date"}, st.dates()),
    ({"type": "long", "logicalType": "timestamp-micros"}, instants),
    (
        {"type": "long", "logicalType": "timestamp-millis"},
        instants.map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
    ),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, locals_),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 6},
        decimals(38, 6),
    ),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 0},
        decimals(5, 0),
    ),
    (
        {
            "type": "fixed",
            "name": "D",
            "size": 9,
            "logicalType": "decimal",
            "precision": 18,
            "scale": 2,
        },
        decimals(18, 2),
    ),
]

# What 64 bits of nanoseconds hold.
_FIRST_NANOS = dt.datetime.fromisoformat("1677-09-22")
_LAST_NANOS = dt.datetime.fromisoformat("2262-04-11")
#: The types that Spark does not hold, with the values that fit them.
BEYOND_SPARK: list[tuple[object, st.SearchStrategy[object]]] = [
    (
        {"type": "int", "logicalType": "time-millis"},
        st.times().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
    ),
    ({"type": "long", "logicalType": "time-micros"}, st.times()),
    (
        {"type": "long", "logicalType": "timestamp-nanos"},
        st.datetimes(_FIRST_NANOS, _LAST_NANOS, timezones=st.just(dt.UTC)),
    ),
    (
        {"type": "long", "logicalType": "local-timestamp-nanos"},
        st.datetimes(_FIRST_NANOS, _LAST_NANOS),
    ),
    (
        {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"},
        st.uuids(),
    ),
    (
        {"type": "fixed", "name": "I", "size": 12, "logicalType": "duration"},
        st.tuples(
            st.integers(0, (1 << 31) - 1),
            st.integers(0, (1 << 31) - 1),
            st.integers(0, (1 << 32) - 1),
        ).map(lambda n: f"P{n[0]}M{n[1]}DT{n[2] // 1000}.{n[2] % 1000:03}S"),
    ),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 10},
        decimals(64, 10),
    ),
    (
        {"type": "fixed", "name": "B", "size": 40}
        | {"logicalType": "decimal", "precision": 90, "scale": 0},
        decimals(90, 0),
    ),
]


def contract_of(schema: Json, *, schema_id: int = 7) -> Contract:
    """A contract without a file."""
    tree = parse_schema(schema)
    return Contract(
        name="made_up",
        version=1,
        schema_id=schema_id,
        text=json.dumps(schema, sort_keys=True, separators=(",", ":")),
        fields=list_fields(tree),
        path=Path("made_up.v1.avsc"),
        format=Avro(),
        tree=tree,
    )


@st.composite
def flat_contracts(draw: st.DrawFn) -> tuple[Contract, list[dict[str, object]]]:
    """A contract of flat fields and up to ten records of it."""
    every = [*FLAT_TYPES, *BEYOND_SPARK]
    chosen = draw(st.lists(st.sampled_from(every), min_size=1, max_size=6))
    fields: list[Json] = []
    values: dict[str, st.SearchStrategy[object]] = {}
    for index, (declared, strategy) in enumerate(chosen):
        name = f"f{index}"
        kind = declared
        if isinstance(kind, dict) and "name" in kind:
            kind = {**kind, "name": f"{kind['name']}{index}"}
        form = draw(st.sampled_from(["plain", "null first", "null last"]))
        values[name] = strategy if form == "plain" else st.none() | strategy
        types = {
            "plain": kind,
            "null first": ["null", kind],
            "null last": [kind, "null"],
        }
        fields.append({"name": name, "type": types[form]})
    contract = contract_of({"type": "record", "name": "R", "fields": fields})
    records = draw(st.lists(st.fixed_dictionaries(values), min_size=1, max_size=10))
    return contract, records


NESTED = contract_of(
    {
        "type": "record",
        "name": "Nested",
        "fields": [
            {"name": "id", "type": "string"},
            {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
            {"name": "counts", "type": {"type": "map", "values": "int"}},
            {
                "name": "place",
                "type": {
                    "type": "record",
                    "name": "Place",
                    "fields": [
                        {
                            "name": "kind",
                            "type": {
                                "type": "enum",
                                "name": "Kind",
                                "symbols": ["A", "B"],
                            },
                        },
                        {"name": "flag", "type": "boolean"},
                    ],
                },
            },
            {"name": "other_place", "type": ["null", "Place"], "default": None},
        ],
    }
)

places = st.fixed_dictionaries(
    {"kind": st.sampled_from(["A", "B"]), "flag": st.booleans()}
)
nested_records = st.fixed_dictionaries(
    {
        "id": texts,
        "tags": st.lists(st.none() | texts, max_size=5),
        "counts": st.dictionaries(texts, ints, max_size=5),
        "place": places,
        "other_place": st.none() | places,
    }
)

_UUID: Json = {"type": "string", "logicalType": "uuid"}
_LETTERS: Json = {"type": "enum", "name": "L", "symbols": ["A", "B", "C"]}
_PLACE_FIELDS: list[Json] = [
    {"name": "key", "type": ["null", _UUID]},
    {"name": "marks", "type": {"type": "array", "items": "boolean"}},
]
_PLACE: Json = {"type": "record", "name": "P", "fields": _PLACE_FIELDS}
_OPENS: Json = {"type": "int", "logicalType": "time-millis"}
_LATER: Json = {"name": "opens", "type": ["null", _OPENS], "default": None}
#: Types with parts that Spark does not hold, which become JSON.
UNIONS: list[object] = [
    ["int", "string"],
    ["null", "long", "double", "boolean", "bytes"],
    ["string", "null", _PLACE, {"type": "array", "items": ["int", "null", "string"]}],
    {"type": "array", "items": _OPENS},
    {
        "type": "map",
        "values": [
            "null",
            {"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 2},
        ],
    },
    {
        "type": "record",
        "name": "Q",
        "fields": [
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "on", "type": {"type": "int", "logicalType": "date"}},
            {"name": "one", "type": [_LETTERS, "float"]},
            {"name": "other", "type": ["float", "null", "string"]},
        ],
    },
]
#: What a field may have been written as, and what it may be read as since.
CHANGES: list[tuple[object, object]] = [
    *((declared, declared) for declared, _ in FLAT_TYPES),
    ({"type": "long", "logicalType": "local-timestamp-millis"},) * 2,
    (_UUID, _UUID),
    (_UUID, "string"),
    ("string", _UUID),
    ("int", "long"),
    ("int", "float"),
    ("int", "double"),
    ("long", "float"),
    ("long", "double"),
    ("float", "double"),
    ("string", "bytes"),
    (_LETTERS, {**_LETTERS, "symbols": ["C", "D", "A"], "default": "D"}),
    (
        {"type": "fixed", "name": "W", "size": 20}
        | {"logicalType": "decimal", "precision": 38, "scale": 3},
    )
    * 2,
    *((declared, declared) for declared, _ in BEYOND_SPARK),
    *((declared, declared) for declared in UNIONS),
    # A part that came later makes all of it JSON.
    (
        {"type": "array", "items": _PLACE},
        {"type": "array", "items": {**_PLACE, "fields": [*_PLACE_FIELDS, _LATER]}},
    ),
]
#: Types with parts that Spark reads.
NESTED_TYPES: list[object] = [
    {"type": "array", "items": "int"},
    {"type": "array", "items": {"type": "array", "items": ["null", "string"]}},
    {"type": "array", "items": _UUID},
    {"type": "map", "values": "double"},
    {"type": "map", "values": {"type": "map", "values": "boolean"}},
    {"type": "array", "items": _PLACE},
    _PLACE,
]
#: A type, a default of it in a schema, and what that means.
ADDITIONS: list[tuple[object, object, object]] = [
    ("string", "mü", "mü"),
    ("bytes", "\u00ff\u0000", b"\xff\x00"),
    (["null", "long"], None, None),
    (["long", "null"], -7, -7),
    ("float", 2, 2.0),
    ("boolean", True, True),
    ({"type": "int", "logicalType": "date"}, 19_000, dt.date(2022, 1, 8)),
    (
        {"type": "long", "logicalType": "timestamp-millis"},
        1_000,
        dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC),
    ),
    ({"type": "fixed", "name": "X", "size": 2}, "ab", b"ab"),
    ({"type": "enum", "name": "Y", "symbols": ["A", "B"]}, "B", "B"),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
        "\u00ff\u0001",
        Decimal("-2.55"),
    ),
]


@dataclass(frozen=True, slots=True)
class EvolvedContracts:
    """Two contracts, each with an older version.

    Attributes:
        contracts: The newer versions read both.
        added: What fields hold that only the newer versions have, in events of the
            older ones.
        flat: The fields that can be columns.
    """

    contracts: EventContracts
    added: dict[str, object]
    flat: list[str]


@st.composite
def evolved_contracts(draw: st.DrawFn) -> EvolvedContracts:
    """Contracts of flat and nested fields that were changed, moved, added, removed."""
    changes = draw(st.lists(st.sampled_from(CHANGES), min_size=1, max_size=6))
    additions = draw(st.lists(st.sampled_from(ADDITIONS), max_size=2))
    later = [
        {"name": f"a{n}", "type": _numbered(kind, f"a{n}"), "default": default}
        for n, (kind, default, _) in enumerate(additions)
    ]
    held = {f"a{n}": value for n, (_, _, value) in enumerate(additions)}
    each: list[EventContract] = []
    for number in range(2):
        chosen = [(n, *one) for n, one in enumerate(changes) if draw(st.booleans())]
        pairs = [draw(_changed_fields(*one)) for one in chosen]
        kept: Json = {"name": "kept", "type": "long"}
        old = [kept, *(former for former, _ in pairs)]
        new = [kept, *later, *(latter for _, latter in pairs)]
        for n, kind in enumerate(draw(st.lists(st.sampled_from(NESTED_TYPES)))[:2]):
            form = _form(_numbered(kind, f"n{n}"), draw(st.integers(0, 2)))
            old.append({"name": f"n{number}{n}", "type": form})
            new += old[-1:] * draw(st.integers(0, 1))
        ids = (2 * number + 1, 2 * number + 2)
        writers = {
            schema_id: _version(number, schema_id, draw(st.permutations(fields)))
            for schema_id, fields in zip(ids, (old, new), strict=True)
        }
        assert not find_incompatibilities(writers[ids[1]].tree, writers[ids[0]].tree)
        each.append(EventContract(contract=writers[ids[1]], writers=writers))
    contracts = EventContracts(tuple(each))
    flat = [field.name for field in contracts.fields if not field.name.startswith("n")]
    return EvolvedContracts(contracts, held, flat)


@st.composite
def _changed_fields(
    draw: st.DrawFn, index: int, written: object, read: object
) -> tuple[Json, Json]:
    """A field as it was written, and as it is read now."""
    form = draw(st.integers(0, 2))
    later_form = draw(st.integers(min(form, 1), 2))
    renamed = draw(st.booleans())
    former = f"g{index}" if renamed else f"f{index}"
    old: Json = {"name": former, "type": _form(_numbered(written, f"{index}"), form)}
    kind = _form(_numbered(read, f"{index}"), later_form)
    new: Json = {"name": f"f{index}", "type": kind}
    return old, {**new, "aliases": [former]} if renamed else new


def _version(number: int, schema_id: int, fields: list[Json]) -> Contract:
    made = contract_of(
        {"type": "record", "name": "R", "fields": fields}, schema_id=schema_id
    )
    return replace(made, name=f"r{number}", version=schema_id)


def _form(kind: object, number: int) -> object:
    """The type itself, or null or it in either order; a union has null inside."""
    if isinstance(kind, list):
        return kind
    return [kind, ["null", kind], [kind, "null"]][number]


def _numbered(kind: object, suffix: str) -> object:
    """Give a type's named parts, each of one capital letter, names of their own."""
    named = re.sub(r'"name": "([A-Z])"', rf'"name": "\g<1>{suffix}"', json.dumps(kind))
    return json.loads(named)
