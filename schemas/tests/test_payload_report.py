"""A payload is read for people as far as it goes, whatever its bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallyweir.schemas.codec import encode
from tallyweir.schemas.contract import load_contract
from tallyweir.schemas.event_contracts import EventContracts, load_event_contracts
from tallyweir.schemas.payload_report import report_payload

_FIELDS: list[dict[str, Any]] = [
    {"name": "event_id", "type": "string"},
    {"name": "amount", "type": "long"},
    {"name": "paid", "type": "boolean"},
]
_RECORD: dict[str, object] = {"event_id": "a-1", "amount": 7, "paid": True}


def _write(folder: Path, version: int, fields: list[dict[str, Any]]) -> Path:
    path = folder / f"order.v{version}.avsc"
    path.write_text(json.dumps({"type": "record", "name": "order", "fields": fields}))
    return path


@pytest.fixture
def contracts(tmp_path: Path) -> EventContracts:
    """One contract, in a folder of its own."""
    _write(tmp_path, 1, _FIELDS)
    return load_event_contracts(["order.v1.avsc"], tmp_path)


def test_an_event_is_read_whole(contracts: EventContracts) -> None:
    """Each field has its bytes, and they follow each other to the end."""
    payload = encode(contracts.each[0].contract, _RECORD)
    report = report_payload(payload, contracts)
    assert report.problem is None
    assert [(one.name, one.value) for one in report.fields] == [
        ("event_id", "a-1"),
        ("amount", "7"),
        ("paid", "True"),
    ]
    assert report.fields[0].from_byte == 5
    assert report.fields[-1].until_byte == len(payload)
    assert (report.failed_field, report.differences) == (None, ())


def test_what_comes_before_a_broken_field_is_read(contracts: EventContracts) -> None:
    """The field that is broken is named with the byte at which it begins."""
    payload = encode(contracts.each[0].contract, _RECORD)
    report = report_payload(payload[:-1] + b"\x07", contracts)
    assert [one.name for one in report.fields] == ["event_id", "amount"]
    assert (report.failed_field, report.failed_at) == ("paid", len(payload) - 1)
    assert "boolean" in (report.problem or "")


def test_the_writer_is_found_although_the_pipeline_cannot_read_it(
    tmp_path: Path, contracts: EventContracts
) -> None:
    """And what the reader lacks is said: this is what has to be mended."""
    path = _write(tmp_path, 2, [*_FIELDS[:1], {"name": "amount", "type": "string"}])
    newer = load_contract(str(path))
    payload = encode(newer, {"event_id": "a-1", "amount": "seven"})
    report = report_payload(payload, contracts)
    assert (report.writer, report.readers) == ("order.v2", ("order.v1",))
    assert [one.value for one in report.fields] == ["a-1", "seven"]
    told = " ".join(report.differences)
    assert "amount is written as string and read as long" in told
    assert "UNKNOWN_SCHEMA" in (report.problem or "")


@given(payload=st.none() | st.binary(max_size=40))
def test_whatever_the_bytes_there_is_a_report(payload: bytes | None) -> None:
    """What is shown at night must not fail as well."""
    contracts = load_event_contracts(["flight_departure.v1"])
    framed = None if payload is None else _FRAME + payload
    for given_bytes in (payload, framed):
        report = report_payload(given_bytes, contracts)
        assert (report.problem is None) is (
            report.writer is not None
            and report.failed_field is None
            and report.fields[-1].until_byte == len(given_bytes or b"")
        )


_FRAME = b"\x00" + load_contract("flight_departure.v1").schema_id.to_bytes(4, "big")
