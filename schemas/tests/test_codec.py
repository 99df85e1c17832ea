"""What is encoded comes back; what was not encoded never does."""

from __future__ import annotations

import datetime as dt
import io
import json
import random
from decimal import Decimal
from typing import cast

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallyweir.schemas.codec import decode, diagnose, encode, encode_many
from tallyweir.schemas.contract import Contract, load_contract
from tallyweir.schemas.errors import DecodeError, EncodeError, ReasonCode
from tallyweir.schemas.formats.framing import HEADER_BYTES, frame
from tallyweir.schemas.tests.strategies import (
    NESTED,
    contract_of,
    flat_contracts,
    nested_records,
)

PAGE_VIEW = load_contract("page_view.v1")
KNOWN = {PAGE_VIEW.schema_id: PAGE_VIEW, NESTED.schema_id: NESTED}
VIEW: dict[str, object] = {
    "event_id": "0f8fad5b-d9cb-469f-a165-70867728950e",
    "user_id": 1_234,
    "page": "/p/12",
    "country": "DE",
    "viewed_at": dt.datetime(2026, 2, 2, 2, 40, tzinfo=dt.UTC),
    "value": 1.5,
}
NESTED_RECORD: dict[str, object] = {
    "id": "x",
    "tags": ["a", None],
    "counts": {"k": 3},
    "place": {"kind": "B", "flag": True},
    "other_place": None,
}


def read_leniently(contract: Contract, body: bytes) -> dict[str, object] | None:
    """What fastavro makes of a body; None if even it refuses."""
    schema = fastavro.parse_schema(json.loads(contract.text))
    try:
        return cast(
            dict[str, object],
            fastavro.schemaless_reader(io.BytesIO(body), schema, None),
        )
    except Exception:  # noqa: BLE001 (it raises what it likes)
        return None


def canonical_body(contract: Contract, record: dict[str, object]) -> bytes | None:
    """The body of a record; None if no such record may be written."""
    try:
        return encode(contract, record)[HEADER_BYTES:]
    except EncodeError:
        return None


def reason(payload: bytes | None) -> str | None:
    """The reason code of a payload, None if it is an event."""
    error = diagnose(payload, KNOWN)
    return error.reason_code if error else None


def test_a_page_view_is_about_eighty_bytes_and_comes_back() -> None:
    """The shipped contract keeps every field to the microsecond."""
    payload = encode(PAGE_VIEW, VIEW)
    assert decode(payload, KNOWN) == VIEW
    assert 60 <= len(payload) <= 90


@given(made=flat_contracts())
@settings(max_examples=200, deadline=None)
def test_every_flat_record_comes_back(
    made: tuple[Contract, list[dict[str, object]]],
) -> None:
    """Decode undoes encode for each type, null or not."""
    contract, records = made
    for record, payload in zip(records, encode_many(contract, records), strict=True):
        assert decode(payload, {contract.schema_id: contract}) == record


@given(record=nested_records)
@settings(max_examples=200, deadline=None)
def test_every_nested_record_comes_back(record: dict[str, object]) -> None:
    """Decode undoes encode through arrays, maps and records."""
    assert decode(encode(NESTED, record), KNOWN) == record


@given(record=nested_records, cut=st.integers(0, 10_000))
@settings(max_examples=200, deadline=None)
def test_a_cut_payload_is_never_an_event(record: dict[str, object], cut: int) -> None:
    """Whatever the place of the cut, some field lacks bytes."""
    payload = encode(NESTED, record)
    assert diagnose(payload[: cut % len(payload)], KNOWN) is not None


@given(extra=st.binary(min_size=1, max_size=20))
def test_bytes_after_the_event_are_trailing_bytes(extra: bytes) -> None:
    """A decodable record followed by anything is not an event."""
    assert reason(encode(PAGE_VIEW, VIEW) + extra) == ReasonCode.TRAILING_BYTES


@pytest.mark.parametrize("seed", range(4))
def test_hostile_bytes_are_refused_or_read_as_fastavro_reads_them(seed: int) -> None:
    """Of 20,000 mutated payloads none crashes, is misread or is refused wrongly."""
    source = random.Random(seed)
    accepted = 0
    for contract, record in ((PAGE_VIEW, VIEW), (NESTED, NESTED_RECORD)):
        valid = encode(contract, record)
        for _ in range(2_500):
            body = _mutate(source, valid[HEADER_BYTES:])
            lenient = read_leniently(contract, body)
            payload = frame(contract.schema_id, body)
            if diagnose(payload, KNOWN) is None:
                accepted += 1
                assert repr(decode(payload, KNOWN)) == repr(lenient)
            elif lenient is not None:
                assert canonical_body(contract, lenient) != body
    assert 100 < accepted < 4_900


def _mutate(source: random.Random, body: bytes) -> bytes:
    kind = source.randrange(4)
    if kind == 0:
        return source.randbytes(source.randrange(60))
    changed = bytearray(body)
    for _ in range(source.randint(1, 4)):
        at = source.randrange(len(changed))
        if kind == 1:
            changed[at] = source.randrange(256)
        elif kind == 2:
            changed[at : at + source.randrange(4)] = source.randbytes(
                source.randrange(1, 4)
            )
        else:
            changed[at:at] = b"\xff" * source.randrange(1, 12)
    return bytes(changed)


def one_field(kind: object) -> Contract:
    """A contract of the single field ``f``."""
    return contract_of(
        {"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}]}
    )


ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}
INSTANT = {"type": "long", "logicalType": "timestamp-micros"}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
LOCAL_MILLIS = {"type": "long", "logicalType": "local-timestamp-millis"}
DATE = {"type": "int", "logicalType": "date"}
LONG_MAX = b"\xfe" + b"\xff" * 8 + b"\x01"


@pytest.mark.parametrize(
    ("kind", "body", "clause"),
    [
        (ENUM, b"\x01", "-1 at byte 5 is not within 0 and 1"),
        (ENUM, b"\x04", "2 at byte 5 is not within 0 and 1"),
        (["null", "string"], b"\x01\x00", "-1 at byte 5"),
        (["null", "string"], b"\x04\x00", "2 at byte 5"),
        ("long", b"\x80" * 10_000 + b"\x00", "over 10 bytes"),
        ("long", b"\x80" * 10 + b"\x00", "over 10 bytes"),
        ("long", b"\xff" * 9 + b"\x02", "is not within"),
        ("int", b"\x80" * 5 + b"\x00", "over 5 bytes"),
        ("int", b"\x80\x80\x80\x80\x10", "is not within"),
        ("boolean", b"\x02", "the boolean at byte 5 is 2"),
        ("boolean", b"", "stream ended at byte 5 of 5"),
        ("double", b"\x00" * 7, "stream ended at byte 12 of 12"),
        ("string", b"\x04\xc3\x28", "the text is no UTF-8 at byte 6"),
        ("string", b"\x06\xed\xa0\x80", "the text is no UTF-8 at byte 6"),
        ("string", b"\x01", "the length at byte 5 is -1"),
        ("string", LONG_MAX, "stream ended at byte 15 of 15"),
        ({"type": "array", "items": "int"}, LONG_MAX, "stream ended"),
        ({"type": "array", "items": "int"}, b"\x01\x04\x02\x00", "a block ends"),
        ({"type": "map", "values": "int"}, b"\x02\x02a", "stream ended"),
        (INSTANT, LONG_MAX, "is not within"),
        (DATE, b"\xfe\xff\xff\xff\x0f", "is not within"),
        (DECIMAL, b"\x00", "the decimal has no bytes"),
        (DECIMAL, b"\x06\x7f\xff\xff", "more than 5 digits"),
        (DECIMAL, b"\x06\x01\x86\xa0", "more than 5 digits"),
        (DECIMAL, b"\x80\xf1\x04" + b"\x7f" * 40_000, "more than 5 digits"),
        ({"type": "string", "logicalType": "uuid"}, b"\x02x", "no UUID"),
    ],
)
def test_bytes_that_lenient_decoders_accept_are_malformed(
    kind: object, body: bytes, clause: str
) -> None:
    """Each guess of a lenient decoder is refused with the place and the reason."""
    contract = one_field(kind)
    error = diagnose(frame(7, body), {7: contract})
    assert error is not None
    assert error.reason_code == ReasonCode.MALFORMED
    assert clause in error.detail


@pytest.mark.parametrize(
    ("kind", "body", "value"),
    [
        ("long", b"\x82\x80\x00", 1),
        ("long", LONG_MAX, (1 << 63) - 1),
        ({"type": "array", "items": "int"}, b"\x01\x02\x02\x00", [1]),
        ({"type": "map", "values": "int"}, b"\x04\x02a\x02\x02a\x04\x00", {"a": 2}),
        ("string", b"\x06a\x00b", "a\x00b"),
    ],
)
def test_unusual_bytes_that_avro_allows_are_events(
    kind: object, body: bytes, value: object
) -> None:
    """Long forms of numbers, sized blocks, repeated keys and NUL are Avro."""
    assert decode(frame(7, body), {7: one_field(kind)}) == {"f": value}


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (None, "EMPTY_PAYLOAD"),
        (b"", "EMPTY_PAYLOAD"),
        (b"\x01\x00\x00\x00\x07", "BAD_MAGIC"),
        (b"{}", "BAD_MAGIC"),
        (b"\x00\x00\x00", "MALFORMED"),
        (frame(8, b""), "UNKNOWN_SCHEMA"),
        (b"\x00\xff\xff\xff\xff", "UNKNOWN_SCHEMA"),
        (frame(7, b""), "MALFORMED"),
    ],
)
def test_each_broken_frame_has_its_own_reason(payload: bytes | None, code: str) -> None:
    """An operator sees from the code alone what kind of producer is wrong."""
    assert reason(payload) == code


def test_a_detail_names_the_field_and_the_byte() -> None:
    """The person who reads the dead letter can point at the byte."""
    payload = encode(PAGE_VIEW, VIEW)[:42]
    with pytest.raises(
        DecodeError, match="field user_id: stream ended at byte 42 of 42"
    ):
        decode(payload, KNOWN)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("user_id", 1.7),
        ("user_id", True),
        ("user_id", 1 << 63),
        ("user_id", "12"),
        ("user_id", None),
        ("viewed_at", dt.datetime(2026, 1, 1)),  # noqa: DTZ001 (that is the point)
        ("viewed_at", 1 << 62),
        ("page", b"/p"),
        ("page", "\ud800"),
        ("value", "1.5"),
    ],
)
def test_a_value_that_would_not_come_back_is_not_written(
    field: str, value: object
) -> None:
    """Lossy and unreadable values are the producer's error, not the reader's."""
    with pytest.raises(EncodeError, match="RECORD_MISFIT"):
        encode(PAGE_VIEW, {**VIEW, field: value})


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (DECIMAL, Decimal("1.234")),
        (DECIMAL, Decimal(1000)),
        (DECIMAL, Decimal("NaN")),
        (DECIMAL, 1.5),
        ("int", 1 << 31),
        ("float", 1e39),
        (ENUM, "C"),
        (DATE, dt.datetime(2026, 1, 1, tzinfo=dt.UTC)),
        (MILLIS, dt.datetime(2026, 1, 1, microsecond=1_999, tzinfo=dt.UTC)),
        (LOCAL_MILLIS, dt.datetime(2026, 1, 1, microsecond=1)),  # noqa: DTZ001
        ({"type": "fixed", "name": "F", "size": 2}, b"abc"),
        ({"type": "array", "items": "int"}, [1, "2"]),
        ({"type": "map", "values": "int"}, {1: 1}),
        ({"type": "string", "logicalType": "uuid"}, "x"),
    ],
)
def test_a_value_of_another_type_is_not_written(kind: object, value: object) -> None:
    """The error names the field and shows the value."""
    with pytest.raises(EncodeError, match="field f"):
        encode(one_field(kind), {"f": value})


def test_missing_and_unknown_fields_are_not_written() -> None:
    """A typo in a field's name does not become a silent default."""
    lacking = {name: value for name, value in VIEW.items() if name != "page"}
    with pytest.raises(EncodeError, match="field page: missing"):
        encode(PAGE_VIEW, lacking)
    with pytest.raises(EncodeError, match="field pages: not in the contract"):
        encode(PAGE_VIEW, {**VIEW, "pages": "/"})
