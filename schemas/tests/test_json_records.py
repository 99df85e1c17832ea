"""What JSON has no type for travels as text, at any depth."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from tallyweir.schemas.codec import decode, encode
from tallyweir.schemas.json_records import UnreadableTextError, compile_reader
from tallyweir.schemas.tests.strategies import contract_of

_INSTANT = {"type": "long", "logicalType": "timestamp-micros"}
_LOCAL = {"type": "long", "logicalType": "local-timestamp-micros"}
_DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
_PLACE = {
    "type": "record",
    "name": "Place",
    "fields": [{"name": "seen", "type": ["null", _INSTANT]}],
}
CONTRACT = contract_of(
    {
        "type": "record",
        "name": "Everything",
        "fields": [
            {"name": "at", "type": _INSTANT},
            {"name": "there", "type": ["null", _LOCAL]},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "price", "type": _DECIMAL},
            {"name": "raw", "type": "bytes"},
            {"name": "mark", "type": {"type": "fixed", "name": "F", "size": 2}},
            {"name": "days", "type": {"type": "array", "items": "bytes"}},
            {"name": "places", "type": {"type": "map", "values": _PLACE}},
            {"name": "text", "type": "string"},
        ],
    }
)
GOOD: dict[str, object] = {
    "at": "2026-11-21T11:15:00+01:00",
    "there": "2026-11-21T11:15:00",
    "day": "2026-11-21",
    "price": "12.50",
    "raw": "AAE=",
    "mark": "//8=",
    "days": ["", "AA=="],
    "places": {"a": {"seen": "2026-11-21T10:15:00Z"}, "b": {"seen": None}},
    "text": "2026-11-21",
}
read = compile_reader(CONTRACT)


def test_texts_become_what_the_contract_says() -> None:
    """Through the codec and back."""
    payload = encode(CONTRACT, read(GOOD))
    instant = dt.datetime(2026, 11, 21, 10, 15, tzinfo=dt.UTC)
    assert decode(payload, {CONTRACT.schema_id: CONTRACT}) == {
        "at": instant,
        "there": dt.datetime(2026, 11, 21, 11, 15),  # noqa: DTZ001 - local by intent
        "day": dt.date(2026, 11, 21),
        "price": Decimal("12.50"),
        "raw": b"\0\1",
        "mark": b"\xff\xff",
        "days": [b"", b"\0"],
        "places": {"a": {"seen": instant}, "b": {"seen": None}},
        "text": "2026-11-21",
    }


def test_what_is_no_text_is_left_to_the_codec() -> None:
    """Whole numbers are in the contract's unit; nonsense stays nonsense."""
    assert read(GOOD | {"at": 7})["at"] == 7
    assert read(GOOD | {"places": 7, "days": "x", "other": 1})["places"] == 7
    assert read({"places": {"a": 5}, "days": [5]}) == {"places": {"a": 5}, "days": [5]}


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("at", "2026-11-21T11:15:00"),
        ("at", "0001-01-01T00:00:00+14:00"),
        ("at", "yesterday"),
        ("there", "2026-11-21T11:15:00Z"),
        ("day", "2026-13-01"),
        ("price", "12,50"),
        ("raw", "\u00e4"),
        ("raw", "A"),
    ],
)
def test_a_text_that_does_not_read_is_refused(field: str, text: str) -> None:
    """The error names the field."""
    with pytest.raises(UnreadableTextError) as caught:
        read(GOOD | {field: text})
    assert caught.value.at == field
    assert repr(text) in caught.value.saw
