"""Rows become what the contract says, or an error with line and column."""

from __future__ import annotations

import datetime as dt
import io
from decimal import Decimal
from pathlib import Path

import pytest

from tallyweir.schemas.codec import encode
from tallyweir.schemas.contract import Contract, DeclaredFields, load_contract
from tallyweir.schemas.tests.strategies import contract_of
from tallyweir.services.produce.emit import TypedRows, plan_faults
from tallyweir.sinks.protocol.errors import ConfigurationError

CONTRACT = contract_of(
    {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "id", "type": "string"},
            {"name": "count", "type": "int"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {
                "name": "price",
                "type": [
                    "null",
                    {
                        "type": "bytes",
                        "logicalType": "decimal",
                        "precision": 9,
                        "scale": 2,
                    },
                ],
            },
            {"name": "note", "type": ["null", "string"], "default": None},
            {"name": "good", "type": ["null", "boolean"], "default": None},
        ],
    }
)
HEADER = "id,count,at,price,note,good\n"
ROW = 'a,+3,2026-01-02T03:04:05.678Z,1.50,"x, y",TRUE\n'
RECORD = {
    "id": "a",
    "count": 3,
    "at": dt.datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=dt.UTC),
    "price": Decimal("1.50"),
    "note": "x, y",
    "good": True,
}


def rows(text: str, form: str = "csv", contract: Contract = CONTRACT) -> TypedRows:
    """Rows of a text."""
    return TypedRows(io.StringIO(text, newline=""), contract, form=form)


def test_csv_cells_take_the_contracts_types() -> None:
    """Quotes, signs and zones are understood."""
    assert list(rows(HEADER + ROW)) == [RECORD]


def test_an_empty_cell_is_null_where_null_is_allowed() -> None:
    """And only there: an empty required text is a text."""
    (record,) = rows(HEADER + ",1,2026-01-01T00:00:00+02:00,,,\n")
    assert (record["id"], record["price"], record["note"]) == ("", None, None)


def test_texts_within_arrays_and_bytes_take_the_contracts_types_too() -> None:
    """A line means the same as the same JSON sent over HTTP."""
    days = {"type": "array", "items": {"type": "int", "logicalType": "date"}}
    contract = contract_of(
        {
            "type": "record",
            "name": "R",
            "fields": [
                {"name": "days", "type": days},
                {"name": "raw", "type": "bytes"},
            ],
        }
    )
    good, bad = '{"days": ["2026-01-02"], "raw": "AAE="}', '{"days": ["x"], "raw": ""}'
    (record,) = rows(good, "jsonl", contract)
    assert record == {"days": [dt.date(2026, 1, 2)], "raw": b"\0\1"}
    with pytest.raises(ConfigurationError, match=r"column days\[\]: 'x' is no date"):
        list(rows(bad, "jsonl", contract))


def test_json_lines_take_the_contracts_types() -> None:
    """JSON lacks instants and decimals; they come as text."""
    line = (
        '{"id": "a", "count": 3, "at": "2026-01-02T03:04:05.678Z", '
        '"price": "1.50", "note": "x, y", "good": true}\n\n'
    )
    assert list(rows(line, "jsonl")) == [RECORD]


def test_a_limit_stops_early() -> None:
    """Rows behind the limit are not even looked at."""
    limited = TypedRows(
        io.StringIO(HEADER + ROW + "broken"), CONTRACT, form="csv", limit=1
    )
    assert list(limited) == [RECORD]


@pytest.mark.parametrize(
    ("text", "clause"),
    [
        (
            HEADER + ROW + ROW.replace("+3", "3.5"),
            "Line 3: column count: '3.5' is no int",
        ),
        (HEADER + ROW.replace("+3", ""), "Line 2: column count: '' is no int"),
        (HEADER + ROW.replace("+3", "1_0"), "column count: '1_0' is no int"),
        (HEADER + ROW.replace("+3", "३"), "column count"),
        (HEADER + ROW.replace("678Z", "678"), "column at"),
        (HEADER + ROW.replace("1.50", "x"), "column price: 'x' is no decimal(9,2)"),
        (HEADER + ROW.replace("TRUE", "yes"), "column good: 'yes' is no boolean"),
        (HEADER + "a,1\n", "Line 2: 2 cells under 6 columns"),
        ("id,count,att\n", "Line 1: the column 'att' is not in made_up.v1"),
        ("id,count\n", "Line 1: the column at is missing"),
        ("id,id,count,at\n", "Line 1: a column appears twice"),
        ("", "there is no header line"),
        (HEADER + 'a,1,"', "not CSV"),
    ],
)
def test_a_bad_csv_row_is_named_by_line_and_column(text: str, clause: str) -> None:
    """Whoever made the file finds the cell."""
    with pytest.raises(ConfigurationError) as caught:
        list(rows(text))
    assert clause in caught.value.saw


@pytest.mark.parametrize(
    ("text", "clause"),
    [
        ('{"id": 1}\n{', "Line 2: not JSON"),
        ("[1]", "Line 1: not a JSON object"),
        ("[" * 100_000, "Line 1: not JSON"),
        ('{"idd": 1}', "the column 'idd' is not in made_up.v1"),
        ('{"at": "2026-01-01"}', "column at"),
        ('{"price": "x"}', "column price"),
        ('{"count": ' + "1" * 5_000 + "}", "Line 1: not JSON"),
    ],
)
def test_a_bad_json_line_is_named(text: str, clause: str) -> None:
    """Hostile JSON ends in one clear error."""
    with pytest.raises(ConfigurationError) as caught:
        list(rows(text, "jsonl"))
    assert clause in caught.value.saw


def test_bytes_that_are_no_text_are_named() -> None:
    """A file in another encoding is one clear error."""
    lines = io.TextIOWrapper(io.BytesIO(HEADER.encode() + b"\xff\n"), encoding="utf-8")
    with pytest.raises(ConfigurationError, match="not UTF-8"):
        list(TypedRows(lines, CONTRACT, form="csv"))


def test_cells_of_csv_become_documents_of_declared_fields() -> None:
    """A field of type ``jsonb`` is given as JSON text."""
    fields = {"id": "text not null", "n": "smallint", "at": "date", "tags": "jsonb"}
    contract = load_contract(DeclaredFields(fields=fields, unknown="ignore").reference)
    text = 'id,n,at,tags\na,3,2024-05-01,"[1, 2.50]"\n'
    (record,) = rows(text, contract=contract)
    assert b'{"id":"a","n":3,"at":"2024-05-01","tags":[1,2.5]}' == encode(
        contract, record
    )


def test_cells_of_csv_become_messages(tmp_path: Path) -> None:
    """A field that JSON leaves out has its default; one of CSV is null if it may be."""
    (tmp_path / "m.proto").write_text(
        'syntax = "proto3"; enum E { A = 0; B = 1; }'
        "message M { string id = 1; uint64 n = 2; E e = 3; optional bool good = 4;"
        "repeated int32 list = 5; }"
    )
    contract = load_contract("m.proto#M", tmp_path)
    text = 'id,n,e,good,list\na,18446744073709551615,B,,"[1, 2]"\n'
    (record,) = rows(text, contract=contract)
    most = b"\xff" * 9 + b"\x01"
    assert encode(contract, record) == b"\n\x01a\x10" + most + b"\x18\x01*\x02\x01\x02"
    (record,) = rows('{"id": "a", "good": false}', "jsonl", contract)
    assert encode(contract, record) == b"\n\x01a \x00"


def test_rows_know_their_line_when_a_record_does_not_fit() -> None:
    """A value that parses and still cannot be written is named by line too."""
    contract = load_contract("flight_departure.v1")
    header = ",".join(field.name for field in contract.fields)
    good = "a,2026-01-01T00:00:00Z,UA,1,,EWR,IAH,100,,,\n"
    text = f"{header}\n{good}{good.replace(',100,', ',3000000000,')}"
    source = rows(text, contract=contract)
    plan = plan_faults(contract=contract, event_id="event_id", partitions=1)
    with pytest.raises(Exception, match="field distance_miles"):
        list(plan.messages(source))
    assert source.line_number == 3
