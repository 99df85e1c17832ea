"""The computed length of a row is the length an encoder would write."""

from __future__ import annotations

import datetime as dt
from decimal import Context, Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings

from schemas.canonical_length import Lengths, encoded_ends, find_doubtful
from schemas.codec import encode_many
from schemas.contract import Contract, load_contract
from schemas.schema_tree import Enumeration, Fixed, Nullable, Primitive, SchemaNode
from schemas.tests.strategies import NESTED, contract_of, flat_contracts
from schemas.wire_format import HEADER_BYTES, frame

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
    "uuid": pa.string(),
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


def encoded_length(contract: Contract, columns: pa.RecordBatch) -> Lengths:
    """The length of each row's body, below zero where it can have none."""
    ends = encoded_ends(contract, columns)
    assert ends is not None
    return ends[-1]


@given(made=flat_contracts())
@settings(max_examples=150, deadline=None)
def test_the_length_of_every_flat_row_is_the_encoders(
    made: tuple[Contract, list[dict[str, object]]],
) -> None:
    """For each type, null or not, at every magnitude."""
    contract, records = made
    lengths = encoded_length(contract, columns_of(contract, records))
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
    first = len(records) // 3
    assert of_window.tolist() == lengths[first : first + len(window)].tolist()


def test_large_strings_have_the_same_lengths_as_strings() -> None:
    """Spark may be told to hand over 64-bit offsets."""
    contract = one_field("string")
    texts = ["", "a" * 63, "a" * 64, "ä" * 5_000]
    for kind in (pa.string(), pa.large_string()):
        columns = pa.RecordBatch.from_pydict({"f": pa.array(texts, kind)})
        lengths = encoded_length(contract, columns)
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
    assert lengths[0] < 0
    assert lengths[1] == 2 + 1 + 2 + 3 + 8 + 8


def test_an_unknown_symbol_matches_no_length() -> None:
    """A symbol that the contract lacks has no encoding."""
    contract = one_field({"type": "enum", "name": "E", "symbols": ["A"]})
    columns = pa.RecordBatch.from_pydict({"f": ["A", "B"]})
    lengths = encoded_length(contract, columns)
    assert lengths[0] == 1
    assert lengths[1] < 0


def test_a_batch_without_rows_has_no_lengths() -> None:
    """Empty partitions are ordinary."""
    contract = load_contract("flight_departure.v1")
    lengths = encoded_length(contract, columns_of(contract, []))
    assert lengths.tolist() == []


def test_nested_fields_are_left_to_the_strict_decoder() -> None:
    """None tells the caller to decode each row."""
    columns = pa.RecordBatch.from_pydict({"id": ["x"]})
    assert encoded_ends(NESTED, columns) is None
    assert find_doubtful(NESTED, pa.array([b"any"]), columns).tolist() == [True]


def test_a_column_of_another_type_is_an_error() -> None:
    """A wrong length would brand good events as malformed."""
    columns = pa.RecordBatch.from_pydict({"f": pa.array([1], pa.int32())})
    with pytest.raises(TypeError, match="expected a column of int64, got int32"):
        encoded_length(one_field("long"), columns)


def is_doubtful(kind: object, value: object, payload: bytes) -> bool:
    """Whether a row of one field, as Spark read it from a payload, is in doubt."""
    contract = one_field(kind)
    column = pa.array([value], arrow_type(contract.tree.fields[0].node))
    # A neighbour's bytes stand before and behind those of the row.
    payloads = pa.array([b"\0" * 9, payload, b"\xff" * 9])[1:2]
    columns = pa.RecordBatch.from_pydict({"f": column})
    (found,) = find_doubtful(contract, payloads, columns).tolist()
    return bool(found)


UUID = {"type": "string", "logicalType": "uuid"}
DATE = {"type": "int", "logicalType": "date"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}


@pytest.mark.parametrize(
    ("kind", "value", "body"),
    [
        ("boolean", True, b"\x01"),
        (["boolean", "null"], None, b"\x02"),
        ("int", -(1 << 31), b"\xff\xff\xff\xff\x0f"),
        ("int", (1 << 31) - 1, b"\xfe\xff\xff\xff\x0f"),
        ("long", -(1 << 63), b"\xff" * 9 + b"\x01"),
        (["null", "long"], 1 << 40, b"\x02\x80\x80\x80\x80\x80\x40"),
        (UUID, "0" * 8 + "-Abcd" * 3 + "-" + "9" * 12, None),
        (DATE, dt.date(1, 1, 1), None),
        (MICROS, dt.datetime(9999, 12, 31, tzinfo=dt.UTC), None),
    ],
)
def test_a_row_that_its_bytes_say_is_beyond_doubt(
    kind: object, value: object, body: bytes | None
) -> None:
    """At the bounds of its type, and as null."""
    contract = one_field(kind)
    (payload,) = encode_many(contract, [{"f": value}])
    assert body in {None, payload[HEADER_BYTES:]}
    assert not is_doubtful(kind, value, payload)


@pytest.mark.parametrize(
    ("kind", "value", "body"),
    [
        ("boolean", False, b"\x02"),
        (["null", "boolean"], False, b"\x02\xff"),
        # Spark drops the bits that a number has too many.
        ("int", -(1 << 31), b"\xff\xff\xff\xff\x1f"),
        (["null", "int"], -(1 << 31), b"\x02\xff\xff\xff\xff\x7f"),
        ("long", -(1 << 63), b"\xff" * 9 + b"\x03"),
        (UUID, "x" * 36, b"\x48" + b"x" * 36),
        (DATE, dt.date(1, 1, 1), b"\x00"),
    ],
)
def test_a_row_that_spark_has_guessed_is_in_doubt(
    kind: object, value: object, body: bytes
) -> None:
    """Its body is as long as that of the value, and is none."""
    assert is_doubtful(kind, value, frame(7, body))


@pytest.mark.parametrize(
    ("kind", "number"), [(DATE, -719_163), (MICROS, 253_402_300_800_000_000)]
)
def test_a_moment_outside_of_the_years_1_to_9999_is_in_doubt(
    kind: object, number: int
) -> None:
    """Spark and Postgres have more years than Avro's readers."""
    contract = one_field(kind)
    (payload,) = encode_many(one_field("long"), [{"f": number}])
    whole = pa.array([number], pa.int32() if kind is DATE else pa.int64())
    column = whole.cast(arrow_type(contract.tree.fields[0].node))
    columns = pa.RecordBatch.from_pydict({"f": column})
    assert find_doubtful(contract, pa.array([payload]), columns).tolist() == [True]


def test_a_row_of_another_schema_is_in_doubt() -> None:
    """Its trailing bytes may make up for a field that its writer did not have."""
    (payload,) = encode_many(one_field("long"), [{"f": 1}])
    assert not is_doubtful("long", 1, payload)
    assert is_doubtful("long", 1, frame(8, payload[HEADER_BYTES:]))
    assert is_doubtful("long", 1, payload + b"\0")


@given(made=flat_contracts())
@settings(max_examples=100, deadline=None)
def test_what_an_encoder_writes_is_doubtful_only_where_it_is_clumsy(
    made: tuple[Contract, list[dict[str, object]]],
) -> None:
    """Strict decoding is slow, and good events are most events."""
    contract, records = made
    payloads = list(encode_many(contract, records))
    doubtful = find_doubtful(
        contract, pa.array(payloads, pa.binary()), columns_of(contract, records)
    )
    shortest = shortest_lengths(contract, records)
    lengths = [len(payload) - HEADER_BYTES for payload in payloads]
    assert doubtful.tolist() == [
        length != short for length, short in zip(lengths, shortest, strict=True)
    ]
