"""JSON documents behind a schema registry's ids."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pyarrow as pa
import pytest

from tallyweir.schemas.contract import DeclaredFields
from tallyweir.schemas.errors import DecodeError
from tallyweir.schemas.event_contracts import EventContracts, load_event_contracts

_FIELDS = {"id": "text not null", "n": "integer"}


def _contracts(
    envelope: str = "", fields: Mapping[str, str] = _FIELDS
) -> EventContracts:
    declared = DeclaredFields(
        fields=fields, unknown="ignore", envelope=envelope, framed=True
    )
    return load_event_contracts([declared.reference])


def _payloads(seed: int) -> list[bytes | None]:
    """Make payloads, each with its header, without it, or with half of it."""
    source = random.Random(seed)
    made: list[bytes | None] = [None, b"", b"\0", b"\0\0\0\0\1", b"{}", b"\0\0\0\0{}"]
    for number in range(500):
        body = b'{"id": "%d", "n": %d}' % (number, source.randrange(1 << 33))
        header = source.choice(
            [b"\0" + source.randbytes(4), b"\1" + source.randbytes(4), b"", b"\0\0"]
        )
        made.append((header + body)[: source.choice([None, None, None, -1])])
    source.shuffle(made)
    return made


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_a_batch_is_decoded_as_each_payload_is(seed: int, kind: pa.DataType) -> None:
    """Also from the middle of an array, which is not where its buffers begin."""
    contracts, payloads = _contracts(), _payloads(seed)
    decoded = contracts.decoder(["id", "n"]).decode(
        pa.array([b"", *payloads], kind).slice(1)
    )
    assert decoded.canonical is not None
    found = zip(
        decoded.is_event.tolist(),
        decoded.columns["id"].to_pylist(),
        decoded.columns["n"].to_pylist(),
        decoded.canonical.to_pylist(),
        strict=True,
    )
    events = 0
    for payload, (is_event, text, number, canonical) in zip(
        payloads, found, strict=True
    ):
        error = contracts.diagnose(payload)
        assert is_event == (error is None), (payload, error)
        if error is None:
            events += 1
            record = contracts.format.decode(payload, contracts.writers)
            assert (record["id"], record["n"]) == (text, number)
            assert canonical == b'{"id":"%s","n":%d}' % (text.encode(), number)
        else:
            assert (None, None, None) == (text, number, canonical)
    assert events > 20


def test_a_payload_without_a_header_is_told_as_that() -> None:
    """The codes are those of framed Avro."""
    contracts = _contracts()

    def reason(payload: bytes | None) -> str:
        with pytest.raises(DecodeError) as caught:
            contracts.format.decode(payload, contracts.writers)
        return caught.value.reason_code

    assert "BAD_MAGIC" == reason(b'{"id": "a"}')
    assert "MALFORMED" == reason(b"\0\0")
    assert "EMPTY_PAYLOAD" == reason(b"")
    assert "EMPTY_PAYLOAD" == reason(None)
    assert "MISSING_FIELD" == reason(b"\0\0\0\0\1{}")


def test_places_are_those_in_the_payload() -> None:
    """A dead letter's bytes are shown with them."""
    (contract,) = _contracts().writers.values()
    plain = DeclaredFields(fields=_FIELDS, unknown="ignore")
    (bare,) = load_event_contracts([plain.reference]).writers.values()
    payload = contract.format.encode(contract, {"id": "a", "n": None})
    begun = contract.format.read_begun(payload, contract)
    other = bare.format.read_begun(payload[5:], bare)
    assert [(one.from_byte, one.until_byte) for one in begun.fields] == [
        (one.from_byte + 5, one.until_byte + 5) for one in other.fields
    ]


def test_a_document_that_is_given_whole_gets_a_header_too() -> None:
    """It keeps its own spelling behind it."""
    (contract,) = _contracts().writers.values()
    payload = contract.format.encode_document(contract, '{"n": 1e0, "id": "a"}')
    assert payload.endswith(b'{"n": 1e0, "id": "a"}')
    decoded = contract.format.decode(payload, {contract.schema_id: contract})
    assert {"id": "a", "n": 1} == decoded


def test_what_is_no_change_of_debezium_is_skipped_behind_a_header() -> None:
    """So is a tombstone, which has none; a payload that should have one is none."""
    contracts = _contracts("debezium", {"row.id": "text"})
    heartbeat = b'\0\0\0\0\1{"ts_ms": 1}'
    (column,) = (one.name for one in contracts.fields)
    decoded = contracts.decoder([column]).decode(pa.array([None, heartbeat, b"{}"]))
    assert {0: "tombstone", 1: "heartbeat"} == dict(decoded.skipped)


@pytest.mark.parametrize("seed", range(5))
def test_no_damage_leaves_an_event_and_most_are_behind_the_header(seed: int) -> None:
    """A damage to a document must not look like a missing header."""
    (contract,) = _contracts().writers.values()
    payload = contract.format.encode(contract, {"id": "a", "n": 7})
    writers, source = {contract.schema_id: contract}, random.Random(seed)
    for name, damage in contract.format.damages.items():
        damaged = damage(payload, contract, source)
        error = contract.format.diagnose(damaged, writers)
        assert error is not None, (name, damaged)
        if name != "random_bytes":
            is_of_header = error.reason_code == "BAD_MAGIC"
            assert is_of_header == (name == "bad_magic"), (name, damaged)
