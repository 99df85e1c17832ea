"""A batch decodes to what the strict decoder says of each payload, and no more."""

from __future__ import annotations

import datetime as dt
import pickle
import uuid
from dataclasses import replace
from decimal import Decimal
from random import Random
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallyweir.schemas.codec import decode, encode, encode_many
from tallyweir.schemas.contract import Contract
from tallyweir.schemas.event_contracts import EventContract, EventContracts
from tallyweir.schemas.formats.avro import byte_cursor, column_walk
from tallyweir.schemas.formats.avro.column_decoder import ColumnDecoder
from tallyweir.schemas.formats.avro.tests.decoded_batches import (
    BAD_TEXT,
    KINDS,
    Payloads,
    are_events,
    check,
    framed,
    one_field,
    only,
    shortened,
)
from tallyweir.schemas.formats.avro.tests.made_payloads import (
    PayloadMaker,
    encoded_number,
)
from tallyweir.schemas.formats.framing import HEADER_BYTES, frame
from tallyweir.schemas.schema_tree import Fixed, Primitive, item_of
from tallyweir.schemas.tests.strategies import (
    CHANGES,
    EvolvedContracts,
    contract_of,
    evolved_contracts,
    flat_contracts,
)


@st.composite
def batches(draw: st.DrawFn) -> tuple[EvolvedContracts, Payloads]:
    """Payloads of one writer of evolved contracts or of all, whole and damaged."""
    made, seed = draw(evolved_contracts()), draw(st.integers(0, 1 << 32))
    slips, damaged = draw(st.sampled_from([(0, 0), (0.02, 0), (0, 0.1), (0.02, 0.1)]))
    chance, maker = Random(seed), PayloadMaker(seed, slips=slips)
    writers = list(made.contracts.writers.items())
    writers = draw(st.sampled_from([writers, writers[:1], writers[1:2]]))
    payloads: list[bytes | None] = []
    for _ in range(draw(st.integers(0, 60))):
        schema_id, writer = chance.choice(writers)
        payload = frame(schema_id, maker.make(writer.tree))
        is_damaged = chance.random() < damaged
        payloads.append(maker.damage(payload) if is_damaged else payload)
    return made, payloads


@settings(max_examples=80, deadline=None)
@given(batch=batches(), few_rows=st.sampled_from([0, 5]))
def test_any_batch_decodes_to_what_the_strict_decoder_says_of_each_payload(
    batch: tuple[EvolvedContracts, Payloads], few_rows: int
) -> None:
    """Of all writers of two contracts, by fastavro's resolution."""
    made, payloads = batch
    decoder = ColumnDecoder(made.contracts, made.flat)
    with mock.patch.object(column_walk, "FEW_ROWS", few_rows):
        check(made, payloads, decoder.decode(pa.array(payloads, pa.binary())))


@settings(max_examples=40, deadline=None)
@given(made=flat_contracts())
def test_what_was_encoded_comes_back(
    made: tuple[Contract, list[dict[str, object]]],
) -> None:
    """Each flat type, null or not, at every magnitude."""
    contract, records = made
    payloads = list(encode_many(contract, records))
    names = [field.name for field in contract.fields]
    seen = ColumnDecoder(only(contract), names).decode(pa.array(payloads, pa.binary()))
    assert seen.is_event.all()
    expected = [decode(payload, {contract.schema_id: contract}) for payload in payloads]
    kinds = {field.name: field.type for field in contract.fields}
    assert [
        {name: as_column(kinds[name], value) for name, value in record.items()}
        for record in expected
    ] == pa.table(dict(seen.columns)).to_pylist()


def as_column(kind: str, value: object) -> object:
    """What a column holds of a decoded value."""
    match value:
        case dt.time():
            return value.isoformat("microseconds")
        case uuid.UUID():
            return str(value)
        case Decimal() if kind.startswith(("decimal(64", "decimal(90")):
            return f"{value:f}"
        case _:
            return value


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()], ids=str)
@pytest.mark.parametrize("offset_max", [None, 0], ids=["narrow", "wide"])
def test_a_slice_of_a_batch_decodes_to_its_own_rows(
    kind: pa.DataType, offset_max: int | None
) -> None:
    """With any width of offsets, and with null payloads."""
    contract = contract_of(
        {
            "type": "record",
            "name": "R",
            "fields": [
                {"name": "a", "type": ["null", "string"]},
                {"name": "b", "type": "bytes"},
            ],
        }
    )
    records: list[dict[str, object]] = [
        {"a": None if n % 3 else "ä" * n, "b": bytes([n])} for n in range(20)
    ]
    payloads: list[bytes | None] = [encode(contract, record) for record in records]
    payloads[7] = None
    payloads[-1] = b""
    batch = pa.array(payloads, kind)
    decoder = ColumnDecoder(only(contract), ["b", "a"])
    limit = byte_cursor._INT32_MAX if offset_max is None else offset_max
    with mock.patch.object(byte_cursor, "_INT32_MAX", limit):
        for start, size in [(0, 20), (5, 10), (7, 1), (19, 1), (3, 0)]:
            seen = decoder.decode(batch.slice(start, size))
            rows = range(start, start + size)
            alive = [row not in {7, 19} for row in rows]
            assert alive == seen.is_event.tolist()
            assert ["b", "a"] == list(seen.columns)
            assert {"a": pa.string(), "b": pa.binary()} == {
                name: column.type for name, column in seen.columns.items()
            }
            for name, column in seen.columns.items():
                expected = [
                    records[row][name] if is_event else None
                    for row, is_event in zip(rows, alive, strict=True)
                ]
                assert expected == column.to_pylist()


@pytest.mark.parametrize(
    "payloads", [[], [None], [b""], [None, b"", b"\x00"], [b"\x00" * 40]], ids=str
)
def test_a_batch_without_an_event_has_columns_of_nulls(payloads: Payloads) -> None:
    """Of the right length and type."""
    seen = ColumnDecoder(only(one_field("long")), ["f"]).decode(
        pa.array(payloads, pa.binary())
    )
    assert [False] * len(payloads) == seen.is_event.tolist()
    assert pa.nulls(len(payloads), pa.int64()).equals(seen.columns["f"])


@pytest.mark.parametrize(("written", "read"), CHANGES, ids=shortened)
def test_what_was_written_as_another_type_is_read_as_fastavro_resolves_it(
    written: object, read: object
) -> None:
    """Wider numbers, symbols that there are no more, text as bytes."""
    old, new = one_field(written), replace(one_field(read), schema_id=8)
    one = EventContract(contract=new, writers={7: old, 8: new})
    made = EvolvedContracts(EventContracts((one,)), {}, ["f"])
    maker = PayloadMaker(8, slips=0)
    payloads = [frame(7, maker.make(old.tree)) for _ in range(60)]
    check(
        made,
        payloads,
        ColumnDecoder(made.contracts, ["f"]).decode(pa.array(payloads, pa.binary())),
    )


@pytest.mark.parametrize(
    "kind", [one for one in KINDS if not isinstance(one, list)], ids=shortened
)
@pytest.mark.parametrize("slips", [0, 0.05], ids=["whole", "slips"])
def test_a_field_that_may_be_null_is_null_only_where_it_was_written_so(
    kind: object, slips: float
) -> None:
    """In a batch of some nulls, of none and of nothing else; wanted or not."""
    contract = one_field(["null", kind])
    node = contract.tree.fields[0].node
    maker = PayloadMaker(6, slips=slips)
    payloads = [frame(contract.schema_id, maker.make(node)) for _ in range(80)]
    made = EvolvedContracts(only(contract), {}, ["f"])
    decoder = ColumnDecoder(made.contracts, ["f"])
    nulls = [one for one in payloads if one[HEADER_BYTES] == 0]
    values = [one for one in payloads if one[HEADER_BYTES] == 2]
    for part in (payloads, nulls, values):
        seen = decoder.decode(pa.array(part, pa.binary()))
        check(made, part, seen)
        assert seen.is_event.tolist() == are_events(contract, part)


def test_columns_have_the_types_that_spark_gives_them() -> None:
    """Of every flat type."""
    expected = {
        "boolean": pa.bool_(),
        "int": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "uuid": pa.string(),
        "bytes": pa.binary(),
        "date": pa.date32(),
        "timestamp-micros": pa.timestamp("us", tz="UTC"),
        "timestamp-millis": pa.timestamp("us", tz="UTC"),
        "local-timestamp-micros": pa.timestamp("us"),
        "local-timestamp-millis": pa.timestamp("us"),
        "timestamp-nanos": pa.timestamp("us", tz="UTC"),
        "local-timestamp-nanos": pa.timestamp("us"),
        "time-millis": pa.string(),
        "time-micros": pa.string(),
    }
    for kind in KINDS:
        contract = one_field(kind)
        node = item_of(contract.tree.fields[0].node)
        seen = ColumnDecoder(only(contract), ["f"]).decode(pa.array([], pa.binary()))
        if isinstance(node, Primitive | Fixed) and node.precision > 38:
            column_type = pa.string()
        elif isinstance(node, Primitive | Fixed) and node.logical == "decimal":
            column_type = pa.decimal128(node.precision, node.scale)
        elif isinstance(node, Primitive):
            column_type = expected[node.logical or node.kind]
        else:
            is_bytes = isinstance(node, Fixed) and node.logical is None
            column_type = pa.binary() if is_bytes else pa.string()
        assert column_type == seen.columns["f"].type


def test_a_decoder_can_be_sent_to_another_process() -> None:
    """It is made anew there."""
    contract = one_field("int")
    decoder = pickle.loads(pickle.dumps(ColumnDecoder(only(contract), ["f"])))
    seen = decoder.decode(pa.array([encode(contract, {"f": -5})], pa.binary()))
    assert [-5] == seen.columns["f"].to_pylist()


def test_a_field_with_parts_is_no_column() -> None:
    """Nor is one that no contract has."""
    contract = one_field({"type": "array", "items": "int"})
    for name in ("f", "g"):
        with pytest.raises(AssertionError, match=name):
            ColumnDecoder(only(contract), [name])


def test_texts_below_a_null_are_texts() -> None:
    """Whoever reads a column's bytes without a look at its nulls is not surprised."""
    contract = one_field("string")
    payloads = framed(contract, BAD_TEXT, encoded_number(1) + b"b")
    seen = ColumnDecoder(only(contract), ["f"]).decode(pa.array(payloads, pa.binary()))
    assert bytes(seen.columns["f"].buffers()[2]) == b"b"
    assert [None, "b"] == seen.columns["f"].to_pylist()
    assert len(payloads[0]) == HEADER_BYTES + 3


@pytest.mark.parametrize("others", [0, 50])
def test_bytes_below_a_null_payload_are_no_event(others: int) -> None:
    """Arrow may keep there whatever it likes, also an event."""
    contract = one_field("int")
    event = encode(contract, {"f": 3})
    whole = pa.array([event, event, *[b"\x01"] * others], pa.binary())
    buffers = [pa.py_buffer(b"\x02" + b"\xff" * 8), *whole.buffers()[1:]]
    payloads = pa.Array.from_buffers(pa.binary(), len(whole), buffers)
    seen = ColumnDecoder(only(contract), ["f"]).decode(payloads)
    assert [False, True] + [False] * others == seen.is_event.tolist()
    assert [None, 3] + [None] * others == seen.columns["f"].to_pylist()
