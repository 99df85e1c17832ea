"""What each kind of field becomes, and what is no event."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from random import Random

import pyarrow as pa
import pytest

from tallyweir.schemas.codec import decode, diagnose, encode
from tallyweir.schemas.contract import Contract
from tallyweir.schemas.errors import EncodeError, ReasonCode
from tallyweir.schemas.formats.protobuf.protobuf_codec import compile_codec
from tallyweir.schemas.formats.protobuf.protobuf_decoder import ProtobufDecoder
from tallyweir.schemas.formats.protobuf.tests.made_messages import varint
from tallyweir.schemas.formats.protobuf.tests.proto_contracts import (
    contract_of,
    contracts_of,
)

_IMPORTS = "".join(
    f'import "google/protobuf/{name}.proto";\n'
    for name in ("timestamp", "wrappers", "struct", "duration")
)


def contract(fields: str, *, syntax: str = 'syntax = "proto3";') -> Contract:
    """Return the contract of a message ``M`` with these fields."""
    return contract_of(f"{syntax}\n{_IMPORTS}{_OTHERS}\nmessage M {{ {fields} }}")


_OTHERS = """
enum E { ZERO = 0; ONE = 1; }
message P { optional string name = 1; optional uint64 size = 2; repeated P parts = 3; }
"""
_OLD = 'syntax = "proto2";'


def told(
    fields: str, payload: bytes | None, *, syntax: str = 'syntax = "proto3";'
) -> str:
    """Return why a payload is no event; empty if it is one."""
    error = diagnose(payload, {1: contract(fields, syntax=syntax)})
    return "" if error is None else str(error)


def read(
    fields: str, payload: bytes, *, syntax: str = 'syntax = "proto3";'
) -> list[object]:
    """Return the values of a payload."""
    one = contract(fields, syntax=syntax)
    return list(decode(payload, {1: one}).values())


def columns(fields: str) -> list[tuple[str, bool]]:
    """Return the type of each column, and whether it can be null."""
    return [(one.type, one.nullable) for one in contract(fields).fields]


def test_scalar_types_are_columns_without_null() -> None:
    """Whatever the way in which a number is written."""
    kinds = "double float int32 int64 uint32 uint64 sint32 sint64 fixed32 fixed64"
    kinds += " sfixed32 sfixed64 bool string bytes E"
    fields = "".join(
        f"{kind} f{number} = {number};" for number, kind in enumerate(kinds.split(), 1)
    )
    assert columns(fields) == [
        (one, False)
        for one in (
            *("double", "float", "int", "long", "long", "decimal(20,0)", "int"),
            *("long", "long", "decimal(20,0)", "int", "long", "boolean", "string"),
            *("bytes", "string"),
        )
    ]


def test_only_what_can_be_absent_can_be_null() -> None:
    """Fields with ``optional``, in a ``oneof``, and messages; not lists and maps."""
    fields = (
        "optional int32 a = 1; oneof o { string b = 2; P c = 3; } P d = 4;"
        "google.protobuf.Timestamp e = 5; google.protobuf.UInt64Value f = 6;"
        "google.protobuf.Struct g = 7; repeated P h = 8; map<string, E> i = 9;"
    )
    assert columns(fields) == [
        ("int", True),
        ("string", True),
        ("json", True),
        ("json", True),
        ("timestamp-micros", True),
        ("decimal(20,0)", True),
        ("json", True),
        ("json", False),
        ("json", False),
    ]
    assert read(fields, b"") == [None] * 7 + ["[]", "{}"]


def test_an_absent_field_without_presence_is_its_default() -> None:
    """Which is what its producer has meant: a default is not written."""
    fields = "int32 a = 1; string b = 2; E c = 3; optional int32 d = 4;"
    assert read(fields, b"") == [0, "", "ZERO", None]
    assert read(fields, b"\x20\x00") == [0, "", "ZERO", 0]


def test_proto2_tells_absent_from_default_and_requires() -> None:
    """A default of the file's own stands for an absent value."""
    fields = "optional int32 a = 1; optional int32 b = 2 [default = 7];"
    assert read(fields, b"", syntax=_OLD) == [None, 7]
    fields = "required string a = 1; optional P b = 2;"
    assert "MISSING_FIELD: field a" in told(fields, b"", syntax=_OLD)
    one = contract(fields, syntax=_OLD)
    assert [field.nullable for field in one.fields] == [False, True]


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b"\x08\x01\x1a\x04\x12\x02\x08\x01\x1a\x00", "items[0].id"),
        (b"\x08\x01\x1a\x08\x08\x01\x12\x04\x08\x01\x10\x01\x1a\x00", "items[1].id"),
        (b"\x08\x01\x22\x05\x0a\x01k\x12\x00", 'named["k"].id'),
        (b"\x08\x01\x2a\x02\x2a\x00", "inner.id"),
    ],
)
def test_a_required_field_is_missed_by_its_path(payload: bytes, expected: str) -> None:
    """After a map with entries the library's own search for it kills the process."""
    fields = (
        "required int32 id = 1; map<int32, int32> counts = 2; repeated M items = 3;"
        "map<string, M> named = 4; optional M inner = 5;"
    )
    assert f"MISSING_FIELD: field {expected}: " in told(fields, payload, syntax=_OLD)
    # What the parser has let pass is told first.
    bad_key = b"\x22\x05\x0a\x01\xff\x12\x00"
    assert "named.key: the text is not" in told(fields, payload + bad_key, syntax=_OLD)


def test_a_record_without_a_required_field_is_not_written() -> None:
    """The library's own message about it would kill the process as well."""
    one = contract(
        "required int32 id = 1; map<int32, int32> counts = 2; repeated M items = 3;",
        syntax=_OLD,
    )
    record: dict[str, object] = {"id": 1, "counts": '{"1": 1}', "items": "[{}]"}
    with pytest.raises(EncodeError, match=r"items\[0\]\.id: missing, and required"):
        encode(one, record)


def test_the_largest_numbers_keep_their_digits() -> None:
    """In columns and in JSON, where they are texts."""
    fields = "uint64 a = 1; P b = 2; repeated uint64 c = 3;"
    most = varint((1 << 64) - 1)
    payload = b"\x08" + most + b"\x12\x0b\x10" + most + b"\x1a\x0a" + most
    assert read(fields, payload) == [
        Decimal(18446744073709551615),
        '{"size":"18446744073709551615","parts":[]}',
        '["18446744073709551615"]',
    ]


def test_an_unknown_number_of_an_open_enum_is_itself() -> None:
    """As a text, since names never are numbers; a closed enum has no such value."""
    assert read("E a = 1; repeated E b = 2;", b"\x08\x07\x12\x02\x01\x09") == [
        "7",
        '["ONE",9]',
    ]
    assert "OUT_OF_RANGE: field a" in told(
        "optional E a = 1;", b"\x08\x07", syntax=_OLD
    )


@pytest.mark.parametrize(
    ("seconds", "nanos", "expected"),
    [
        (0, 1_000, dt.datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=dt.UTC)),
        (-1, 999_999_000, dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC)),
        (253_402_300_799, 0, dt.datetime(9999, 12, 31, 23, 59, 59, tzinfo=dt.UTC)),
        (0, 1, "nanos are no whole number of microseconds"),
        (0, -1, "nanos are -1"),
        (0, 1_000_000_000, "nanos are 1000000000"),
        (253_402_300_800, 0, "outside of the years"),
    ],
)
def test_a_timestamp_is_exact_or_dead(
    seconds: int, nanos: int, expected: dt.datetime | str
) -> None:
    """Never rounded, and never another year."""
    whole = 1 << 64
    inner = b"\x08" + varint(seconds % whole) + b"\x10" + varint(nanos % whole)
    payload = b"\x0a" + varint(len(inner)) + inner
    fields = "google.protobuf.Timestamp at = 1;"
    if isinstance(expected, str):
        assert expected in told(fields, payload)
        assert "OUT_OF_RANGE: field at" in told(fields, payload)
        return
    assert read(fields, payload) == [expected]


@pytest.mark.parametrize(
    ("seconds", "nanos", "expected"),
    [
        (0, 0, "PT0S"),
        (90, 500_000_000, "PT0H1M30.5S"),
        (0, -1_000, "PT-0.000001S"),
        (-315_576_000_000, 0, "PT-87660000H-0M-0S"),
        (-315_575_999_999, -999_999_000, "PT-87659999H-59M-59.999999S"),
        (0, 1, "nanos are no whole number of microseconds"),
        (1, -1_000, "no duration: 1 seconds, -1000 nanos"),
        (315_576_000_001, 0, "no duration"),
    ],
)
def test_a_duration_is_exact_or_dead(seconds: int, nanos: int, expected: str) -> None:
    """It is the text that Postgres reads as an interval."""
    whole = 1 << 64
    inner = b"\x08" + varint(seconds % whole) + b"\x10" + varint(nanos % whole)
    payload = b"\x0a" + varint(len(inner)) + inner
    fields = "google.protobuf.Duration took = 1;"
    if not expected.startswith("PT"):
        assert expected in told(fields, payload)
        assert "OUT_OF_RANGE: field took" in told(fields, payload)
        return
    assert read(fields, payload) == [expected]
    one = contract(fields)
    assert read(fields, encode(one, {"took": expected})) == [expected]
    with pytest.raises(EncodeError, match="RECORD_MISFIT"):
        encode(one, {"took": "1.5s"})


_BAD = [
    ("string a = 1;", None, "EMPTY_PAYLOAD"),
    ("string a = 1;", b"\x08\x01", "WRONG_TYPE: field a: expected a length"),
    ("int32 a = 1;", b"\x0a\x01x", "WRONG_TYPE: field a: expected a varint"),
    ("int32 a = 1;", b"\x0d\0\0\0\0", "WRONG_TYPE: field a"),
    ("string a = 1;", b"\x0a\x02\xc3\x28", "MALFORMED: field a: the text is not UTF-8"),
    ("string a = 1;", b"\x0a\x05abc", "MALFORMED: the value of field number 1 ends"),
    ("string a = 1;", b"\x0a\xff\xff\xff\xff\x7fx", "MALFORMED"),
    ("int32 a = 1;", b"\x08", "MALFORMED: no varint at byte 1"),
    ("int32 a = 1;", b"\x08\x01\x00", "MALFORMED: no field begins at byte 2"),
    ("int32 a = 1;", b"\x08" + varint(1 << 40), "OUT_OF_RANGE: field a"),
    ("int32 a = 1;", b"\x08" + varint((1 << 32) - 1), "OUT_OF_RANGE: field a"),
    ("uint32 a = 1;", b"\x08" + varint((1 << 32) + (1 << 31)), "OUT_OF_RANGE: field a"),
    ("sint32 a = 1;", b"\x08" + varint(1 << 33), "OUT_OF_RANGE: field a"),
    ("bool a = 1;", b"\x08\x02", "OUT_OF_RANGE: field a"),
    ("E a = 1;", b"\x08" + varint(1 << 32), "OUT_OF_RANGE: field a"),
    ("repeated bool a = 1;", b"\x0a\x02\x01\x05", "OUT_OF_RANGE: field a"),
    ("repeated fixed32 a = 1;", b"\x0a\x03abc", "MALFORMED: field a"),
    ("P a = 1;", b"\x0a\x02\x0a\x01", "MALFORMED: field a"),
    ("P a = 1;", b"\x0a\x04\x1a\x02\x10\x80", "MALFORMED: field a.parts"),
    ("P a = 1;", b"\x0a\x04\x1a\x02\x08\x01", "WRONG_TYPE: field a.parts.name"),
    ("P a = 1;", b"\x0a\x03\x0a\x01\0", "OUT_OF_RANGE: field a.name: a NUL"),
    ("map<string, int32> a = 1;", b"\x0a\x02\x10" + b"\x80", "MALFORMED: field a"),
    ("int32 a = 1;", b"\x0b\x08\x01", "MALFORMED: the group of field number 1"),
    ("int32 a = 1;", b"\x0c", "MALFORMED: no group ends at byte 0"),
    ("int32 a = 1;", b"\x0f", "MALFORMED: no field begins at byte 0"),
    ("int32 a = 1;", b'{"a": 1}', "MALFORMED"),
    ("int32 a = 1;", b"\0\0\0\0\x05\0\x08\x01", "schema registry's id, 5"),
]


@pytest.mark.parametrize(("fields", "payload", "expected"), _BAD)
def test_a_payload_that_is_no_message_says_where(
    fields: str, payload: bytes | None, expected: str
) -> None:
    """By the field's path and the rule that it breaks."""
    assert expected in told(fields, payload)


def test_texts_of_proto2_are_utf8_too() -> None:
    """Its parsers take any bytes for them."""
    payload = b"\x0a\x02\xc3\x28"
    assert "MALFORMED: field a" in told("optional string a = 1;", payload, syntax=_OLD)
    inner = b"\x0a\x04" + payload
    assert "MALFORMED: field a.name" in told("optional P a = 1;", inner, syntax=_OLD)


def test_messages_in_messages_end_at_the_parsers_depth() -> None:
    """A payload cannot make a reader go deeper, and none is read in part."""
    payload = b"\x0a\x01a"
    for depth in range(90):
        payload = b"\x1a" + varint(len(payload)) + payload
        if depth == 80:
            assert told("P a = 3;", payload) == ""
    for _ in range(60_000):
        payload = b"\x1a" + varint(len(payload)) + payload
        if len(payload) > 100_000:
            break
    assert "nested deeper than 100" in told("P a = 3;", payload)


def test_unknown_fields_are_ignored_and_counted() -> None:
    """At any depth, by number, and they are a part of what a repeat must repeat."""
    one = contract("string a = 1; P b = 2;")
    codec = compile_codec(one.text)
    payload = b"\x0a\x01x\x12\x03\x48\x05\x50"[:6] + b"\x7a\x01y\x48\x07"
    payload = b"\x0a\x01x" + b"\x12\x02\x48\x05" + b"\x7a\x01y" + b"\x48\x07"
    decoded = ProtobufDecoder(contracts_of(one), ["a"]).decode(
        pa.array([payload, b"\x48\x01"], pa.binary())
    )
    assert decoded.columns["a"].to_pylist() == ["x", ""]
    assert decoded.unnamed == {"#9": 2, "#15": 1, "b.#9": 1}
    moved = b"\x7a\x01y" + b"\x12\x02\x48\x05" + b"\x48\x07" + b"\x0a\x01x"
    assert codec.read(moved).canonical == codec.read(payload).canonical
    changed = payload[:-1] + b"\x08"
    assert codec.read(changed).canonical != codec.read(payload).canonical
    wider = compile_codec(
        contract("string a = 1; P b = 2; string c = 15; int32 d = 9;").text
    )
    # A repeat that comes after the contract has got the field is still one.
    assert wider.read(payload).canonical == codec.read(payload).canonical


def test_a_record_that_does_not_fit_is_not_written() -> None:
    """The error names the field."""
    one = contract(
        "uint32 a = 1; uint64 b = 2; E c = 3; P d = 4;"
        "oneof o { string e = 5; string f = 6; } repeated int32 g = 7;"
    )
    good: dict[str, object] = {"a": 1, "b": Decimal(2), "c": "ONE", "e": "x"}
    assert decode(encode(one, good), {1: one}) == {
        **good,
        "d": None,
        "f": None,
        "g": "[]",
    }
    for field, value in [
        ("a", -1),
        ("a", 1 << 32),
        ("a", None),
        ("b", Decimal(-1)),
        ("b", Decimal(1 << 64)),
        ("c", "TWO"),
        ("c", "01"),
        ("c", "1"),
        ("d", "{"),
        ("d", '{"nome": "x"}'),
        ("d", '{"name": "x", "name": "y"}'),
        ("f", "x"),
        ("g", "[1.5]"),
        ("g", '["x"]'),
        ("h", 1),
    ]:
        with pytest.raises(
            EncodeError, match=rf"RECORD_MISFIT.*(field {field}|{field})"
        ):
            encode(one, {**good, field: value})


def test_a_broken_payload_is_shown_as_far_as_it_goes() -> None:
    """Fields have no order, so a broken one hides no other that is there."""
    one = contract("string a = 1; int32 b = 2; string c = 3;")
    payload = b"\x1a\x01z" + b"\x10" + varint(1 << 40) + b"\x0a\x01x" + b"\x2a\x09"
    begun = one.format.read_begun(payload, one)
    assert [field.value for field in begun.fields] == ["x"]
    assert begun.failed_at == 3
    begun = one.format.read_begun(payload, one, until="c")
    assert [field.value for field in begun.fields] == ["x", None, "z"]
    assert begun.failed_at is None
    cut = one.format.read_begun(b"\x0a\x09x", one)
    assert (cut.fields, cut.failed_at) == ((), 0)


def test_every_damage_makes_a_dead_letter() -> None:
    """Also of the emptiest message."""
    one = contract("string a = 1; int32 b = 2;")
    for record in ({"a": "text", "b": 5}, {"a": "", "b": 0}):
        payload = encode(one, dict(record))
        for name, damage in one.format.damages.items():
            for seed in range(20):
                broken = damage(payload, one, Random(seed))
                error = diagnose(broken, {1: one})
                assert error is not None, name
                assert error.reason_code in set(ReasonCode)
