"""What values are written in."""

from __future__ import annotations

import struct

import pytest

from tallyweir.schemas.contract import load_contract
from tallyweir.services.look.look import known_contracts
from tallyweir.services.look.pipeline_proposal import propose
from tallyweir.services.look.tests.looked_topics import profiled, record, told
from tallyweir.services.look.value_kinds import ValueKind, classify

_FRAME = struct.pack(">bi", 0, 77)
_ENVELOPE = b'{"before":null,"after":{"id":1},"op":"c","source":{"lsn":1}}'


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (b'{"a":1}', ValueKind.JSON),
        (b' \n{"a":{}}', ValueKind.JSON),
        (b'{"a":1,"a":2}', ValueKind.BROKEN_JSON),
        (b'\xef\xbb\xbf{"a":1}', ValueKind.BROKEN_JSON),
        (b'{"a":NaN}', ValueKind.BROKEN_JSON),
        (b'[{"a":1}]', ValueKind.JSON_ARRAY),
        (_ENVELOPE, ValueKind.DEBEZIUM),
        (b'{"schema":{},"payload":' + _ENVELOPE + b"}", ValueKind.DEBEZIUM_SCHEMA),
        (b'{"schema":{},"payload":{"a":1}}', ValueKind.CONNECT_SCHEMA),
        (
            b'{"specversion":"1.0","id":"1","source":"s","type":"t","data":{}}',
            ValueKind.CLOUD_EVENT,
        ),
        (_FRAME + b'{"a":1}', ValueKind.FRAMED_JSON),
        (_FRAME + b"\x00\x0a\x03abc\x10\x01", ValueKind.FRAMED_PROTOBUF),
        (_FRAME + b"\x06abc\x02", ValueKind.AVRO),
        (b"\xc3\x01" + bytes(8), ValueKind.SINGLE_OBJECT),
        (b"a,b,c\n", ValueKind.TEXT),
        ("größe".encode(), ValueKind.TEXT),
        (b"42", ValueKind.TEXT),
        (b"", ValueKind.BYTES),
        (b"\xff\xfe\x00", ValueKind.BYTES),
        (b"\x00\xff\xff\xff\xff", ValueKind.BYTES),
    ],
)
def test_a_value_is_told_by_its_bytes(value: bytes, kind: ValueKind) -> None:
    """JSON is what the strict reader accepts."""
    assert kind is classify(value, {}).kind


def test_a_known_contract_is_named_and_read() -> None:
    """By the schema id in the payload."""
    contract = load_contract("page_view.v1")
    contracts = known_contracts(())
    assert contract in contracts.values()
    broken = struct.pack(">bi", 0, contract.schema_id)
    seen = classify(broken, contracts)
    assert (ValueKind.AVRO, contract) == (seen.kind, seen.contract)
    assert seen.fault is not None


@pytest.mark.parametrize("value", [b"text", b"{}", b"\xff\x00", b"[1]"])
def test_what_is_not_read_gets_no_pipeline(value: bytes) -> None:
    """The report says so instead."""
    found = [record(value, offset) for offset in range(3)]
    with profiled(found) as profile:
        assert propose(profile, "orders") is None
    assert "No pipeline is proposed." in told(found)


def test_a_mixed_topic_is_told_with_its_shares() -> None:
    """The pipeline reads what most values are; tombstones are counted apart."""
    found = [
        *(record({"order_id": f"o{n}"}, n) for n in range(8)),
        record(b"plain", 8),
        record(b'{"a":', 9),
        record(None, 10),
    ]
    text = told(found)
    assert "80.0 % JSON\n" in text
    assert "10.0 % text" in text
    assert "1 would be dead letters: MALFORMED" in text
    assert "tombstones: 1" in text
