"""The computed length of a row is the length an encoder would write."""

from __future__ import annotations

import datetime as dt
from decimal import Context, Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings

from schemas.canonical_length import encoded_length
from schemas.codec import encode_many
from schemas.contract import Contract, load_contract
from schemas.schema_tree import Enumeration, Fixed, Nullable, Primitive, SchemaNode
from schemas.tests.strategies import NESTED, contract_of, flat_contracts
from schemas.wire_format import HEADER_BYTES

ARROW_TYPES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "date": pa.date32(),
    "timestamp-micros": pa.timestamp("us", tz="UTC"),
    "timestamp-millis": pa.timestamp("us", tz="UTC"),
    "local-timestamp-micros": pa.timestamp("us"),
}


def arrow_type(node: SchemaNode) -> pa.DataType:
    """The type that Spark's from_avro gives a field, as Arrow."""
    match node:
        case Nullable():
            return arrow_type(node.item)
        case Enumeration():
            return pa.string()
        case Primitive() | Fixed() if node.logical == "decimal":
            return pa.decimal128(node.precision, node.scale)
        case Fixed():
            return pa.binary()
        case Primitive():
            return ARROW_TYPES[node.logical or node.kind]
        case _:
            raise AssertionError(node)


def columns_of(contract: Contract, records: list[dict[str, object]]) -> pa.RecordBatch:
    """The records as Spark would hand them over."""
    return pa.RecordBatch.from_pydict(
        {
            field.name: pa.array(
                [record[field.name] for record in records], arrow_type(field.node)
            )
            for field in contract.tree.fields
        }
    )


def shortest_lengths(contract: Contract, records: list[dict[str, object]]) -> list[int]:
    """Body lengths by the encoder, which writes some decimals a byte too long."""
    nodes = {field.name: field.node for field in contract.tree.fields}
    return [
        len(payload)
        - HEADER_BYTES
        - sum(_spare_byte(nodes[name], value) for name, value in record.items())
        for record, payload in zip(records, encode_many(contract, records), strict=True)
    ]


def _spare_byte(node: SchemaNode, value: object) -> int:
    item = node.item if isinstance(node, Nullable) else node
    if not isinstance(item, Primitive) or not isinstance(value, Decimal):
        return 0
    unscaled = int(value.scaleb(item.scale, Context(prec=50)))
    # fastavro gives -128 two bytes, Java (and so Spark's producers) one.
    shortest = (unscaled ^ (unscaled >> 200)).bit_length() // 8 + 1
    return (unscaled.bit_length() + 8) // 8 - shortest


@given(made=flat_contracts())
@settings(max_examples=150, deadline=None)
def test_the_length_of_every_flat_row_is_the_encoders(
    made: tuple[Contract, list[dict[str, object]]],
) -> None:
    """For each type, null or not, at every magnitude."""
    contract, records = made
    lengths = encoded_length(contract, columns_of(contract, records))
    assert lengths is not None
    assert lengths.tolist() == shortest_lengths(contract, records)


@given(made=flat_contracts())
@settings(max_examples=50, deadline=None)
def test_a_slice_of_a_batch_has_the_lengths_of_its_rows(
    made: tuple[Contract, list[dict[str, object]]],
) -> None:
    """Arrow's offsets into shared buffers are respected."""
    contract, records = made
    columns = columns_of(contract, records)
    window = columns.slice(len(records) // 3, len(records) // 2)
    lengths = encoded_length(contract, columns)
    of_window = encoded_length(contract, window)
    assert lengths is not None
    assert of_window is not None
    first = len(records) // 3
    assert of_window.tolist() == lengths[first : first + len(window)].tolist()


def test_large_strings_have_the_same_lengths_as_strings() -> None:
    """Spark may be told to hand over 64-bit offsets."""
    contract = one_field("string")
    texts = ["", "a" * 63, "a" * 64, "ä" * 5_000]
    for kind in (pa.string(), pa.large_string()):
        columns = pa.RecordBatch.from_pydict({"f": pa.array(texts, kind)})
        lengths = encoded_length(contract, columns)
        assert lengths is not None
        assert lengths.tolist() == [1, 64, 66, 10_003]


def one_field(kind: object) -> Contract:
    """A contract of the single field ``f``."""
    return contract_of(
        {"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}]}
    )


def test_a_row_without_a_required_value_matches_no_length() -> None:
    """Spark's permissive mode yields a row of nulls for what it cannot decode."""
    contract = load_contract("page_view.v1")
    records: list[dict[str, object]] = [
        {field.name: None for field in contract.fields},
        {
            "event_id": "a",
            "user_id": 1,
            "page": "/",
            "country": "DE",
            "viewed_at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
            "value": 0.0,
        },
    ]
    lengths = encoded_length(contract, columns_of(contract, records))
    assert lengths is not None
    assert lengths.tolist() == [-1, 2 + 1 + 2 + 3 + 8 + 8]


def test_an_unknown_symbol_matches_no_length() -> None:
    """A symbol that the contract lacks has no encoding."""
    contract = one_field({"type": "enum", "name": "E", "symbols": ["A"]})
    columns = pa.RecordBatch.from_pydict({"f": ["A", "B"]})
    lengths = encoded_length(contract, columns)
    assert lengths is not None
    assert lengths.tolist() == [1, -1]


def test_a_batch_without_rows_has_no_lengths() -> None:
    """Empty partitions are ordinary."""
    contract = load_contract("flight_departure.v1")
    lengths = encoded_length(contract, columns_of(contract, []))
    assert lengths is not None
    assert lengths.tolist() == []


def test_nested_fields_are_left_to_the_strict_decoder() -> None:
    """None tells the caller to decode each row."""
    assert encoded_length(NESTED, pa.RecordBatch.from_pydict({"id": ["x"]})) is None


def test_a_column_of_another_type_is_an_error() -> None:
    """A wrong length would brand good events as malformed."""
    columns = pa.RecordBatch.from_pydict({"f": pa.array([1], pa.int32())})
    with pytest.raises(TypeError, match="expected a column of int64, got int32"):
        encoded_length(one_field("long"), columns)
