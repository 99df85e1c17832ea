"""A payload that is no event is told by what it is, and by what to change."""

from __future__ import annotations

import bz2
import gzip
import io
import json

import fastavro
import pytest

from tallyweir.schemas.codec import diagnose, encode
from tallyweir.schemas.contract import Contract
from tallyweir.schemas.formats.avro.tests.decoded_batches import one_field
from tallyweir.schemas.formats.framing import HEADER_BYTES, frame

_TEXT: Contract = one_field("string")
_RECORD = {"id": "e1", "amount": 3}


def _object_file() -> bytes:
    stream = io.BytesIO()
    schema = fastavro.parse_schema(json.loads(_TEXT.text))
    fastavro.writer(stream, schema, [{"f": "x"}], sync_marker=bytes(16))
    return stream.getvalue()


def _told(payload: bytes, contract: Contract = _TEXT) -> str:
    error = diagnose(payload, {contract.schema_id: contract})
    assert error is not None
    return str(error)


@pytest.mark.parametrize(
    ("payload", "form", "fix"),
    [
        (json.dumps(_RECORD).encode(), "JSON", "send Avro by the contract"),
        (json.dumps([_RECORD], indent=2).encode() + b"\n", "JSON", "over HTTP"),
        (b"\xef\xbb\xbf" + json.dumps(_RECORD).encode(), "JSON", "batch --input"),
        (_object_file(), "an Avro object container file", "batch --input"),
        (b"\xc3\x01" + bytes(8) + b"\x02x", "Avro's single-object", "schema id"),
        (gzip.compress(b"{}", mtime=0), "compressed by gzip", "compression.type"),
        (bz2.compress(b"{}"), "compressed by bzip2", "compression.type"),
        (b"\x28\xb5\x2f\xfd\x04\x00", "compressed by zstd", "compression.type"),
        (b"PAR1\x15\x04", "a Parquet file", "batch --input"),
        (b"<order id='1'/>", "XML", "send Avro"),
        ("e1;gr\u00fcn;3\r\n".encode(), "text", "send Avro"),
        # Cut off within a character, as the first part of a long text is.
        (b"a" + "\u00fc".encode() * 600, "text", "send Avro"),
    ],
)
def test_what_producers_send_by_mistake_is_recognised(
    payload: bytes, form: str, fix: str
) -> None:
    """The first byte alone tells nobody what to change."""
    told = _told(payload)
    assert told.startswith(f"BAD_MAGIC: the first byte is 0x{payload[0]:02x}")
    assert f"; it is {form}" in told
    assert fix in told


def test_avro_without_a_schema_id_is_recognised_by_the_contract() -> None:
    """It is an event but for the header that a registry's serializer writes."""
    body = encode(_TEXT, {"f": "\x01\x02"})[HEADER_BYTES:]
    told = _told(body)
    assert told.startswith("BAD_MAGIC: ")
    assert f"it is {_TEXT.reference} without a schema id" in told


def test_such_a_body_may_begin_with_a_zero() -> None:
    """Then its first bytes are taken for a schema id that nobody knows."""
    contract = one_field({"type": "fixed", "name": "F", "size": 7})
    told = _told(b"\x00" * 7, contract)
    assert told.startswith("UNKNOWN_SCHEMA: ")
    assert "without a schema id" in told


@pytest.mark.parametrize("payload", [b"\xff\xfe\x80", b"\x01\x02", b"\x7f"])
def test_what_is_nothing_known_is_told_by_its_first_byte_only(payload: bytes) -> None:
    """A guess would send people the wrong way."""
    assert _told(payload).endswith("expected 0x00")


def test_other_reasons_say_what_they_said() -> None:
    """An event that is broken behind its header has one."""
    assert "it is" not in _told(frame(_TEXT.schema_id, b"\x08ab"))
