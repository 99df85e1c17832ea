"""Hypothesis strategies for contracts and for records that fit them."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path

from hypothesis import strategies as st

from schemas.contract import Contract, list_fields
from schemas.safety import parse_schema

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
        tree=tree,
    )


@st.composite
def flat_contracts(draw: st.DrawFn) -> tuple[Contract, list[dict[str, object]]]:
    """A contract of flat fields and up to ten records of it."""
    chosen = draw(st.lists(st.sampled_from(FLAT_TYPES), min_size=1, max_size=6))
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
