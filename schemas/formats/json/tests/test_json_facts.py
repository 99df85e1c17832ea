"""Documents by hand: what is an event, what it holds, and why others are none."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal

import pytest

from tallyweir.schemas.errors import EncodeError
from tallyweir.schemas.formats.json.json_format import Json
from tallyweir.schemas.formats.json.json_text import DEPTH_MAX
from tallyweir.schemas.formats.json.tests.json_contracts import (
    ORDER_FIELDS,
    contract_of,
    decode,
    fault_of,
)

_UTC = dt.UTC
_ONE_DAY = dt.datetime(2026, 11, 26, 8, 16, 9, tzinfo=_UTC)
_LOCAL = _ONE_DAY.replace(tzinfo=None)


@pytest.mark.parametrize(
    ("kind", "token", "value"),
    [
        ("text", r'"a\u00e9\n\/\ud83d\udcca"', "aé\n/\U0001f4ca"),
        ("text", '""', ""),
        ("boolean", "true", True),
        ("smallint", "-32768", -32768),
        ("integer", "1.0", 1),
        ("integer", "1e2", 100),
        ("integer", "120e-1", 12),
        ("integer", "-0", 0),
        ("bigint", "9223372036854775807", 9223372036854775807),
        ("bigint", "-9223372036854775808.000", -9223372036854775808),
        ("numeric(12,2)", "149.90", Decimal("149.90")),
        ("numeric", "149.90", "149.9"),
        ("numeric", "-1e2", "-100"),
        ("numeric", "1" * 40 + ".5", "1" * 40 + ".5"),
        ("numeric", "1.25e-900", "1.25e-900"),
        ("numeric", "-0.0", "0"),
        ("numeric from text", '"1.50"', "1.5"),
        ("numeric(12,2)", "149.9000000000000000000", Decimal("149.90")),
        ("numeric(12,2)", "-1e2", Decimal(-100)),
        ("numeric(12,2)", "9999999999.99", Decimal("9999999999.99")),
        ("numeric(38,0)", "9" * 38, Decimal("9" * 38)),
        ("numeric(38,38)", "0." + "9" * 38, Decimal("0." + "9" * 38)),
        ("double precision", "0.1", 0.1),
        ("double precision", "9007199254740993", 9007199254740992.0),
        ("double precision", "1e-400", 0.0),
        ("double precision", "-0.0", 0.0),
        ("real", "0.1", 0.10000000149011612),
        # In the middle of two singles but for a digit that no double has.
        ("real", "1.00000005960464477539062500000000000001", 1.0000001192092896),
        ("real", "1.000000059604644775390625", 1.0),
        ("date", '"2024-02-29"', dt.date(2024, 2, 29)),
        ("timestamptz", '"2026-11-26T08:16:09Z"', _ONE_DAY),
        ("timestamptz", '"2026-11-26 09:16:09.000000000+0100"', _ONE_DAY),
        ("timestamptz", '"2026-11-26t03:16:09,0-05"', _ONE_DAY),
        ("timestamptz", '"2026-11-26T08:16Z"', _ONE_DAY.replace(second=0)),
        ("timestamptz epoch s", "1795680969", _ONE_DAY.replace(hour=8, minute=16)),
        ("timestamptz epoch ms", "1795680969000", _ONE_DAY),
        ("timestamptz epoch us", "1795680969000000", _ONE_DAY),
        ("timestamptz epoch ns", "1795680969000000000", _ONE_DAY),
        ("timestamp", '"2026-11-26T08:16:09"', _LOCAL),
        ("timestamp epoch ms", "1795680969000", _LOCAL),
        ("timestamptz at 'Europe/Berlin'", '"2026-11-26T09:16:09"', _ONE_DAY),
        ("timestamptz at 'Europe/Berlin'", '"2026-11-26T08:16:09Z"', _ONE_DAY),
        ("timestamptz truncated", '"2026-11-26T08:16:09.0000009Z"', _ONE_DAY),
        ("timestamptz epoch ns truncated", "1795680969000000999", _ONE_DAY),
        (
            "timestamptz epoch ns truncated",
            "-1",
            dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=_UTC),
        ),
        (
            "uuid",
            '"0B0F1C1E-7D0A-4C7C-9D2B-5A0D5F1B2C3D"',
            "0b0f1c1e-7d0a-4c7c-9d2b-5a0d5f1b2c3d",
        ),
        ("jsonb", '{ "b": [1.50, "\\u0041"], "a": null }', '{"a":null,"b":[1.5,"A"]}'),
        ("jsonb", "12345678901234567890.10", "12345678901234567890.1"),
        ("bytea", '"AP8="', b"\x00\xff"),
        ("numeric(12,2) from text", '"149.90"', Decimal("149.90")),
        ("bigint from text", '"9223372036854775807"', 2**63 - 1),
        ("double precision from text", '"1e-1"', 0.1),
        ("numeric(12,2) from base64", '"Oo4="', Decimal("149.90")),
        ("numeric(12,2) from base64", '"/w=="', Decimal("-0.01")),
        ("date epoch days", "-1", dt.date(1969, 12, 31)),
        ("date epoch days", "2932896.0", dt.date(9999, 12, 31)),
    ],
)
def test_a_value_is_read_exactly(kind: str, token: str, value: object) -> None:
    """Also where it is written in an unusual way."""
    found = decode(contract_of({"f": kind}), f'{{"f":{token}}}')["f"]
    assert found == value
    assert type(found) is type(value)


_UUID = "0b0f1c1e-7d0a-4c7c-9d2b-5a0d5f1b2c3d"


@pytest.mark.parametrize(
    ("kind", "token", "reason"),
    [
        ("text", "5", "WRONG_TYPE"),
        ("text", "true", "WRONG_TYPE"),
        ("text", "{}", "WRONG_TYPE"),
        ("boolean", "1", "WRONG_TYPE"),
        ("boolean", '"true"', "WRONG_TYPE"),
        ("smallint", "32768", "OUT_OF_RANGE"),
        ("integer", "2147483648", "OUT_OF_RANGE"),
        ("integer", "1.5", "OUT_OF_RANGE"),
        ("integer", "1e-1", "OUT_OF_RANGE"),
        ("integer", '"1"', "WRONG_TYPE"),
        ("bigint", "9223372036854775808", "OUT_OF_RANGE"),
        ("bigint", "1e999", "OUT_OF_RANGE"),
        ("numeric(12,2)", "0.001", "OUT_OF_RANGE"),
        ("numeric(12,2)", "10000000000", "OUT_OF_RANGE"),
        ("numeric(12,2)", '"1.00"', "WRONG_TYPE"),
        ("numeric", '"1.00"', "WRONG_TYPE"),
        ("numeric", "true", "WRONG_TYPE"),
        ("numeric", "1e1001", "OUT_OF_RANGE"),
        ("double precision", "1e309", "OUT_OF_RANGE"),
        ("double precision", '"1"', "WRONG_TYPE"),
        ("double precision", "NaN", "MALFORMED"),
        ("double precision", "Infinity", "MALFORMED"),
        ("double precision", "-Infinity", "MALFORMED"),
        ("real", "3.5e38", "OUT_OF_RANGE"),
        ("real", "1e400", "OUT_OF_RANGE"),
        ("date", '"2023-02-29"', "OUT_OF_RANGE"),
        ("date", '"0000-01-01"', "OUT_OF_RANGE"),
        ("date", '"2023-2-9"', "WRONG_TYPE"),
        ("date", '"2023-02-09T00:00:00Z"', "WRONG_TYPE"),
        ("date", "19000", "WRONG_TYPE"),
        ("timestamptz", '"2026-11-26T08:16:09"', "WRONG_TYPE"),
        ("timestamptz", '"2026-11-26T08:16:09.0000001Z"', "OUT_OF_RANGE"),
        ("timestamptz", '"2026-11-26T24:00:00Z"', "OUT_OF_RANGE"),
        ("timestamptz", '"2026-11-26T23:59:60Z"', "OUT_OF_RANGE"),
        ("timestamptz", '"2026-13-26T08:16:09Z"', "OUT_OF_RANGE"),
        ("timestamptz", '"2026-11-26T08:16:09+24:00"', "OUT_OF_RANGE"),
        ("timestamptz", '"0001-01-01T00:00:00+01:00"', "OUT_OF_RANGE"),
        ("timestamptz", '"9999-12-31T23:59:59-01:00"', "OUT_OF_RANGE"),
        ("timestamptz", '"٢026-11-26T08:16:09Z"', "WRONG_TYPE"),
        ("timestamptz", "1795680969", "WRONG_TYPE"),
        ("timestamptz epoch s", '"1795680969"', "WRONG_TYPE"),
        ("timestamptz epoch ms", "0.0001", "OUT_OF_RANGE"),
        ("timestamptz epoch ns", "1", "OUT_OF_RANGE"),
        ("timestamptz epoch s", "253402300800", "OUT_OF_RANGE"),
        ("timestamptz epoch s", "1e999", "OUT_OF_RANGE"),
        ("timestamp", '"2026-11-26T08:16:09Z"', "WRONG_TYPE"),
        # Missing in spring, there twice in autumn.
        ("timestamptz at 'Europe/Berlin'", '"2026-03-29T02:30:00"', "OUT_OF_RANGE"),
        ("timestamptz at 'Europe/Berlin'", '"2026-10-25T02:30:00"', "OUT_OF_RANGE"),
        ("timestamptz at 'Europe/Berlin'", '"0001-01-01T00:00:00"', "OUT_OF_RANGE"),
        ("uuid", f'"{{{_UUID}}}"', "WRONG_TYPE"),
        ("uuid", f'"{_UUID}\\n"', "WRONG_TYPE"),
        ("uuid", '"0b0f1c1e7d0a4c7c9d2b5a0d5f1b2c3d"', "WRONG_TYPE"),
        ("bytea", '"AP8"', "WRONG_TYPE"),
        ("bytea", '"AP9="', "WRONG_TYPE"),
        ("bytea", '"AP8=\\n"', "WRONG_TYPE"),
        ("bytea", '"ä"', "WRONG_TYPE"),
        ("numeric(12,2) from text", "149.90", "WRONG_TYPE"),
        ("numeric(12,2) from text", '"149.905"', "OUT_OF_RANGE"),
        ("numeric(12,2) from text", '" 149.90"', "WRONG_TYPE"),
        ("numeric(12,2) from text", '"+149.90"', "WRONG_TYPE"),
        ("numeric(12,2) from text", '""', "WRONG_TYPE"),
        ("bigint from text", '"true"', "WRONG_TYPE"),
        ("bigint from text", '"9223372036854775808"', "OUT_OF_RANGE"),
        ("double precision from text", '"NaN"', "WRONG_TYPE"),
        ("numeric(4,2) from base64", '"Oo4="', "OUT_OF_RANGE"),
        ("numeric(12,2) from base64", '""', "OUT_OF_RANGE"),
        ("numeric(12,2) from base64", '"Oo4"', "WRONG_TYPE"),
        ("date epoch days", "2932897", "OUT_OF_RANGE"),
        ("date epoch days", "0.5", "OUT_OF_RANGE"),
        ("date epoch days", '"0"', "WRONG_TYPE"),
    ],
)
def test_a_value_that_its_field_does_not_hold_is_refused(
    kind: str, token: str, reason: str
) -> None:
    """The error names the field."""
    fault = fault_of(contract_of({"a.f": kind}), f'{{"a":{{"f":{token}}}}}')
    assert fault.reason_code == reason
    assert fault.detail.startswith("field a.f: ")


_NESTED = '{"f":1,"x":' + "[" * DEPTH_MAX + "]" * DEPTH_MAX + "}"
_DEEPEST = '{"f":1,"x":' + "[" * (DEPTH_MAX - 1) + "]" * (DEPTH_MAX - 1) + "}"


@pytest.mark.parametrize(
    ("payload", "reason", "seen"),
    [
        (None, "EMPTY_PAYLOAD", "tombstone"),
        (b"", "EMPTY_PAYLOAD", "no bytes"),
        (b" ", "MALFORMED", "no value but the end at byte 1"),
        (b'\xef\xbb\xbf{"f":1}', "MALFORMED", "byte order mark"),
        (b'\x00\x00\x00\x00\x05{"f":1}', "MALFORMED", "registry's header"),
        ('{"f":1}'.encode("utf-16"), "MALFORMED", "not UTF-8: ff fe"),
        (b'{"f":1,"x":"\xed\xa0\x80"}', "MALFORMED", "not UTF-8: ed a0 80"),
        (b'{"f":1,"x":"\xc3"}', "MALFORMED", "at byte 12"),
        ('{"ä":"ä","f":tru}', "MALFORMED", "field f: no value but tru at byte 15"),
        ('{"f":1', "MALFORMED", "no comma or } but the end"),
        ('{"f":1,}', "MALFORMED", "no name but }"),
        ('{"f":1 "x":2}', "MALFORMED", "no comma or }"),
        ('{"f" 1}', "MALFORMED", "no colon but 1"),
        ("{'f':1}", "MALFORMED", "no name but 'f'"),
        ('{"f":01}', "MALFORMED", "no comma or } but 1"),
        ('{"f":1.}', "MALFORMED", "but ."),
        ('{"f":.5}', "MALFORMED", "no value but .5"),
        ('{"f":+1}', "MALFORMED", "no value but +1"),
        ('{"f":0x1}', "MALFORMED", "but x1"),
        ('{"f":1,"x":[1,]}', "MALFORMED", "field x[1]: no value but ]"),
        ('{"f":1,"x":"a', "MALFORMED", "a text without its end"),
        ('{"f":1,"x":"\t"}', "MALFORMED", r"a control character in a text: \t"),
        (r'{"f":1,"x":"\x41"}', "MALFORMED", r"no escape: \x41"),
        (r'{"f":1,"x":"\u00"}', "MALFORMED", r"no escape: \u00"),
        (r'{"f":1,"x":["\ud83d"]}', "MALFORMED", r"surrogate pair \ud83d"),
        (r'{"f":1,"\udcca":1}', "MALFORMED", r"surrogate pair \udcca"),
        (r'{"f":1,"x":"\u0000"}', "MALFORMED", "field x: a NUL character"),
        (b'{"f":1,"x":"\x00"}', "MALFORMED", "a control character"),
        ('{"f":1}{"f":1}', "TRAILING_BYTES", "followed by { at byte 7"),
        (b'{"f":1}\x00', "TRAILING_BYTES", r"followed by \x00"),
        ("[]", "WRONG_TYPE", "at the top level, got an array"),
        ("null", "WRONG_TYPE", "at the top level, got null"),
        ('{"f":1,"f":1}', "DUPLICATE_KEY", "field f: the name is there twice"),
        (r'{"f":1,"\u0066":1}', "DUPLICATE_KEY", "field f:"),
        ('{"f":1,"x":[{"y":1,"y":1}]}', "DUPLICATE_KEY", "field x[0].y:"),
        (_NESTED, "OUT_OF_RANGE", "nested in more than 64 levels"),
        ('{"f":1e999999999}', "OUT_OF_RANGE", "an exponent beyond 1,000"),
        ('{"f":1,"x":1E-1001}', "OUT_OF_RANGE", "an exponent beyond 1,000"),
        ('{"f":' + "1" * 1001 + "}", "OUT_OF_RANGE", "a number of 1,001 characters"),
        ("{}", "MISSING_FIELD", "field f: missing or null"),
        ('{"f":null}', "MISSING_FIELD", "field f: missing or null"),
    ],
)
def test_a_payload_that_is_no_document_is_refused(
    payload: bytes | str | None, reason: str, seen: str
) -> None:
    """Wherever the fault lies, also in fields that nobody named."""
    fault = fault_of(contract_of({"f": "bigint not null"}), payload)
    assert fault.reason_code == reason
    assert seen in fault.detail


def test_the_deepest_document_is_an_event() -> None:
    """So is one with spaces wherever they may be."""
    contract = contract_of({"f": "bigint"})
    assert decode(contract, _DEEPEST) == {"f": 1}
    assert decode(contract, ' {\n\t"f" :\r1 , "x" : [ ] , "y" : { } }\n') == {"f": 1}


def test_a_message_is_short_whatever_the_token() -> None:
    """The path and the token are cut."""
    name = "n" * 10_000
    fault = fault_of(
        contract_of({f"a.{name}": "bigint as n"}), f'{{"a":{{"{name}":"{name}"}}}}'
    )
    assert len(fault.detail) < 400


def test_an_object_on_the_way_may_lack() -> None:
    """Missing and null are the same; another value is not."""
    contract = contract_of({"a.b": "text", "c": "text"})
    for text in ("{}", '{"a":null}', '{"a":{}}', '{"a":{"b":null}}'):
        assert decode(contract, text) == {"a_b": None, "c": None}
    assert fault_of(contract, '{"a":[]}').reason_code == "WRONG_TYPE"


def test_unknown_fields_can_be_refused() -> None:
    """At the top level, and beside named ones inside."""
    contract = contract_of({"a.b": "text"}, "refuse")
    assert decode(contract, '{"a":{"b":"x"}}') == {"a_b": "x"}
    for text, path in (('{"z":1}', "z"), ('{"a":{"z":1}}', "a.z")):
        fault = fault_of(contract, text)
        assert fault.reason_code == "UNKNOWN_FIELD"
        assert fault.detail.startswith(f"field {path}:")


def test_unknown_fields_can_be_kept() -> None:
    """With all their digits, in canonical form; null if there is none."""
    contract = contract_of({"a.b": "text"}, "rest")
    assert decode(contract, '{"a":{"b":"x"}}') == {"a_b": "x", "rest": None}
    found = decode(contract, '{"z":1.2300,"a":{"b":"x","y":[1e2]},"c":null}')
    assert found == {"a_b": "x", "rest": '{"a":{"y":[100]},"c":null,"z":1.23}'}


@pytest.mark.parametrize("unknown", ["ignore", "refuse", "rest"])
def test_what_is_written_is_read_back(unknown: str) -> None:
    """Values that are None are left out."""
    contract = contract_of(
        {
            **ORDER_FIELDS,
            "day": "date",
            "ms": "timestamptz epoch ms",
            "ns": "timestamp epoch ns",
            "local": "timestamp",
            "berlin": "timestamptz at 'Europe/Berlin'",
            "u": "uuid",
            "raw": "bytea",
            "single": "real",
            "small": "smallint",
            "priced": "numeric(12,2) from text",
            "unscaled": "numeric(38,2) from base64",
            "days": "date epoch days",
        },
        unknown,
    )
    record: dict[str, object] = {
        "order_id": 'a"\\ü\n\x1f',
        "customer_id": 2**63 - 1,
        "customer_segment": None,
        "amount": Decimal("-149.90"),
        "quantity": 3,
        "placed_at": dt.datetime(2026, 11, 26, 8, 16, 9, 5, tzinfo=_UTC),
        "is_gift": False,
        "score": 0.1,
        "tags": '["a",{"b":1.5}]',
        "day": dt.date(1, 1, 1),
        "ms": dt.datetime(2026, 11, 26, 8, 16, 9, 5_001, tzinfo=_UTC),
        "ns": dt.datetime(1969, 11, 26, 8, 16, 9, 5),  # noqa: DTZ001
        "local": dt.datetime(9999, 12, 31, 23, 59, 59, 999_999),  # noqa: DTZ001
        "berlin": dt.datetime(2026, 10, 25, 0, 30, tzinfo=_UTC),
        "u": _UUID,
        "raw": b"\x00\xff",
        "single": 0.5,
        "small": -1,
        "priced": Decimal("-149.90"),
        "unscaled": Decimal("-1.28"),
        "days": dt.date(9999, 12, 31),
    }
    if unknown == "rest":
        record["rest"] = '{"customer":{"z":1},"z":[null]}'
    payload = Json().encode(contract, record)
    assert decode(contract, payload) == record
    assert b"segment" not in payload


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("order_id", None),
        ("order_id", 5),
        ("order_id", "\0"),
        ("order_id", "\ud800"),
        ("customer_id", 2**63),
        ("customer_id", True),
        ("amount", Decimal("0.001")),
        ("amount", Decimal("NaN")),
        ("amount", Decimal("1e999999")),
        ("amount", 1.5),
        ("placed_at", _LOCAL),
        ("placed_at", "2026-11-26T08:16:09Z"),
        ("placed_at", 2**70),
        ("is_gift", 1),
        ("score", float("nan")),
        ("score", 2**53 + 1),
        ("tags", "{"),
        ("tags", "null"),
        ("tags", '1,"x":2'),
        ("nobody", 1),
    ],
)
def test_what_would_not_be_read_back_is_not_written(column: str, value: object) -> None:
    """The error names the field."""
    record: dict[str, object] = {"order_id": "a", "amount": Decimal(1), column: value}
    with pytest.raises(EncodeError, match=f"field {column}:"):
        Json().encode(contract_of(ORDER_FIELDS), record)


def test_integers_stand_for_moments() -> None:
    """As for other formats: microseconds, or days."""
    contract = contract_of({"t": "timestamptz", "d": "date"})
    record: dict[str, object] = {"t": 1, "d": -1}
    payload = Json().encode(contract, record)
    assert payload == b'{"t":"1970-01-01T00:00:00.000001Z","d":"1969-12-31"}'
    as_uuid = Json().encode(contract_of({"u": "uuid"}), {"u": uuid.UUID(_UUID)})
    assert as_uuid == f'{{"u":"{_UUID}"}}'.encode()


def test_a_damaged_document_is_read_as_far_as_it_goes() -> None:
    """Field by field in the contract's order, up to the first that is not readable."""
    contract = contract_of({"a": "text", "b.c": "bigint", "d": "boolean"})
    payload = '{"a":"ä","b":{"c":7},"d":tr'.encode()
    begun = Json().read_begun(payload, contract)
    assert [one.value for one in begun.fields] == ["ä", 7]
    assert begun.failed_at == payload.index(b"tr")
    assert payload[begun.fields[1].from_byte : begun.fields[1].until_byte] == b"7"

    begun = Json().read_begun(payload, contract, until="a")
    assert [one.value for one in begun.fields] == ["ä"]
    begun = Json().read_begun(b'{"d":true,"a":"x"}', contract)
    assert [one.value for one in begun.fields] == ["x", None, True]
    assert begun.failed_at is None
    begun = Json().read_begun(b'{"a":"x","b":{"c":1.5}}', contract)
    assert (len(begun.fields), begun.failed_at) == (1, 18)
    assert Json().read_begun(b'{"a":"\xff', contract).failed_at == 5
    assert Json().read_begun(b"", contract).failed_at == 0
