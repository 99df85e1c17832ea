"""Types that Spark does not hold, as texts that say exactly what was sent."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal

import pyarrow as pa
import pytest

from tallyweir.schemas.codec import decode, diagnose, encode
from tallyweir.schemas.contract import Contract
from tallyweir.schemas.errors import EncodeError
from tallyweir.schemas.event_contracts import EventContract, EventContracts
from tallyweir.schemas.formats.avro.compatibility import find_incompatibilities
from tallyweir.schemas.formats.avro.tests.decoded_batches import (
    framed,
    one_field,
    only,
)
from tallyweir.schemas.formats.avro.tests.made_payloads import encoded_number
from tallyweir.schemas.formats.decoded_columns import EventDecoder
from tallyweir.schemas.json_records import UnreadableTextError, compile_reader
from tallyweir.schemas.tests.strategies import contract_of

_TIME = {"type": "int", "logicalType": "time-millis"}
_DURATION = {"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"}
_NANOS = {"type": "long", "logicalType": "timestamp-nanos"}
_WIDE = {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 10}
_PRICE = {
    "type": "record",
    "name": "com.example.Price",
    "fields": [{"name": "amount", "type": _WIDE}],
}
_UNION = ["null", "int", "long", "float", "string", _PRICE]


def column(contract: Contract, *payloads: bytes) -> list[object]:
    """What the column ``f`` holds of each payload."""
    decoder: EventDecoder = only(contract).decoder(["f"])
    seen = decoder.decode(pa.array(payloads, pa.binary()))
    found: list[object] = seen.columns["f"].to_pylist()
    return found


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (_TIME, dt.time(23, 59, 59, 999_000), "23:59:59.999000"),
        (_TIME, 0, "00:00:00.000000"),
        (_DURATION, "P0M0DT0.000S", "P0M0DT0.000S"),
        (_DURATION, "P1Y2M1W1DT1H1M1.5S", "P14M8DT3661.500S"),
        (_DURATION, f"P{2**31 - 1}M", f"P{2**31 - 1}M0DT0.000S"),
        (_WIDE, Decimal("-0.0000000001"), "-0.0000000001"),
        (_WIDE, Decimal(0), "0.0000000000"),
        (_WIDE, Decimal("9" * 54), f"{'9' * 54}.0000000000"),
        (_UNION, None, None),
        (_UNION, {"int": 5}, '{"int":5}'),
        (_UNION, {"long": 5}, '{"long":5}'),
        (_UNION, {"float": 0.5}, '{"float":0.5}'),
        (_UNION, {"string": '5"\0'}, '{"string":"5\\"\\u0000"}'),
        (
            _UNION,
            {"com.example.Price": {"amount": Decimal("0.1")}},
            '{"com.example.Price":{"amount":0.1000000000}}',
        ),
        ({"type": "map", "values": _TIME}, {"ä": 1}, '{"ä":"00:00:00.001000"}'),
    ],
    ids=str,
)
def test_a_value_becomes_one_text(kind: object, value: object, text: object) -> None:
    """Whatever form it was given in; and the branch is the one that was named."""
    contract = one_field(kind)
    payload = encode(contract, {"f": value})
    assert [text] == column(contract, payload)
    again = decode(payload, {contract.schema_id: contract})
    assert payload == encode(contract, again)


@pytest.mark.parametrize(
    ("kind", "body", "detail"),
    [
        (_TIME, encoded_number(86_400_000), "86400000 at byte 5 is not within 0 and"),
        (_TIME, encoded_number(-1), "-1 at byte 5 is not within 0 and 86399999"),
        (_NANOS, encoded_number(1_001), "1001 ns at byte 5 are no whole number of"),
        (_DURATION, b"\xff" * 12, "4294967295 months are more than 2147483647"),
        (
            _DURATION,
            b"\0" * 4 + b"\xff" * 8,
            "4294967295 days are more than 2147483647",
        ),
        (_DURATION, b"\0" * 11, "stream ended at byte 16 of 16, 17 needed"),
        (_WIDE, encoded_number(0), "the decimal has no bytes"),
        (
            _WIDE,
            encoded_number(27) + (10**64).to_bytes(27, signed=True),
            "the decimal has more than 64 digits",
        ),
        (_UNION, encoded_number(6), "6 at byte 5 is not within 0 and 5"),
        (_UNION, encoded_number(4) + encoded_number(1) + b"\xff", "no UTF-8"),
        ({"type": "array", "items": _NANOS}, encoded_number(1) + b"\2\0", "1 ns at"),
    ],
    ids=str,
)
def test_what_the_column_could_not_hold_is_malformed(
    kind: object, body: bytes, detail: str
) -> None:
    """Of one payload and of many."""
    contract = one_field(kind)
    (payload,) = framed(contract, body)
    error = diagnose(payload, {contract.schema_id: contract})
    assert error is not None
    assert error.reason_code == "MALFORMED"
    assert detail in error.detail
    assert [None] * 40 == column(contract, *[payload] * 40)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (_TIME, dt.time(1, 2, 3, 4)),
        (_TIME, dt.time(1, tzinfo=dt.UTC)),
        (_TIME, 86_400_000),
        (_NANOS, 1),
        (_NANOS, dt.datetime(2300, 1, 1, tzinfo=dt.UTC)),
        (_DURATION, "P"),
        (_DURATION, "PT"),
        (_DURATION, "P1H"),
        (_DURATION, "PT1.0005S"),
        (_DURATION, f"P{2**31}M"),
        (_DURATION, "PT4294967.296S"),
        (_DURATION, b"\0" * 12),
        (_UNION, 5),
        (_UNION, {"int": 5, "long": 5}),
        (_UNION, {"int": 2**31}),
        (_UNION, {"double": 0.5}),
        (["int", "long"], None),
    ],
    ids=str,
)
def test_a_value_that_would_not_come_back_is_not_written(
    kind: object, value: object
) -> None:
    """Nothing is cut off, and no branch is guessed."""
    with pytest.raises(EncodeError, match="RECORD_MISFIT"):
        encode(one_field(kind), {"f": value})


@pytest.mark.parametrize(
    ("kind", "default", "text"),
    [
        (_TIME, 3_600_001, "01:00:00.001000"),
        (_NANOS, 2_000, dt.datetime(1970, 1, 1, 0, 0, 0, 2, tzinfo=dt.UTC)),
        (_DURATION, "\x01\0\0\0\x02\0\0\0\x03\0\0\0", "P1M2DT0.003S"),
        (_WIDE, "\u00ff", "-0.0000000001"),
        ([_TIME, "string"], 1, '{"int":"00:00:00.001000"}'),
        (["null", _TIME, "string"], None, None),
        ({"type": "array", "items": _TIME}, [1], '["00:00:00.001000"]'),
        (_PRICE, {"amount": "\u0001"}, '{"amount":1E-10}'),
    ],
    ids=str,
)
def test_a_default_is_the_value_that_it_stands_for(
    kind: object, default: object, text: object
) -> None:
    """For a field that the writer lacks, and for one inside of a field."""
    schema = json.loads(one_field("int").text)
    added = {"name": "g", "type": kind, "default": default}
    new = contract_of({**schema, "fields": [*schema["fields"], added]}, schema_id=8)
    old = contract_of(schema, schema_id=7)
    one = EventContract(contract=new, writers={7: old, 8: new})
    decoder: EventDecoder = EventContracts((one,)).decoder(["g"])
    seen = decoder.decode(pa.array([encode(old, {"f": 1})], pa.binary()))
    (found,) = seen.columns["g"].to_pylist()
    if isinstance(text, str) and text.startswith("{"):
        found, text = (json.loads(str(one)) for one in (found, text))
    assert text == found


@pytest.mark.parametrize(
    ("read", "written", "difference"),
    [
        (["int", "string", "long"], ["string", "int"], None),
        (["int", "string"], ["string", "int", "long"], "written as long"),
        (["long", "string"], ["int", "string"], "written as int"),
        (["int", "string"], ["null", "string"], "may be null when written"),
        (["int", "string"], ["null", "int", "string"], "may be null when written"),
        (["int", "string"], "int", "written as int and read as union"),
        (_NANOS, "long", "written as long and read as timestamp-nanos"),
    ],
    ids=str,
)
def test_a_union_reads_what_its_types_read(
    read: object, written: object, difference: str | None
) -> None:
    """By name, so that a branch never changes its meaning."""
    found = find_incompatibilities(one_field(read).tree, one_field(written).tree)
    assert found == [] if difference is None else difference in found[0]


def test_json_gives_the_branch_by_its_name() -> None:
    """As the rows of ``emit`` and the bodies of ingest do."""
    read = compile_reader(one_field(_UNION))
    wide = {"com.example.Price": {"amount": "0.5"}}
    assert read({"f": wide}) == {"f": {"com.example.Price": {"amount": Decimal("0.5")}}}
    assert read({"f": {"int": 5}}) == {"f": {"int": 5}}
    assert compile_reader(one_field(_TIME))({"f": "01:02:03.004"}) == {
        "f": dt.time(1, 2, 3, 4_000)
    }
    with pytest.raises(UnreadableTextError, match="timestamp-nanos"):
        compile_reader(one_field(_NANOS))({"f": "2024-05-01T00:00:00.000000001Z"})
