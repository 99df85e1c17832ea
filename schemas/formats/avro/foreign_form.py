"""Recognise a payload that does not begin like an event by its bytes.

A misconfigured producer sends all of its records in such a form. Their dead letters
say which form it is, and what to change.
"""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

from tallyweir.schemas.formats.framing import Framing

if TYPE_CHECKING:
    from tallyweir.schemas.contract import Contract

_BY_REGISTRY = "let the producer's serializer put the schema id in front"
_BY_FRAMING = f"{_BY_REGISTRY}, or write framing: single_object with its contract"
_BY_KAFKA = "send what is inside, and let Kafka compress it (compression.type)"
#: The first bytes of a payload, the form that they reveal, and what to do about it.
_BEGINNINGS = (
    (
        b"Obj\x01",
        "an Avro object container file",
        "send each of its records as a message, or import the file by batch --input",
    ),
    (b"\xc3\x01", "Avro's single-object encoding", _BY_FRAMING),
    (b"PAR1", "a Parquet file", "import it by batch --input"),
    (b"\x1f\x8b", "compressed by gzip", _BY_KAFKA),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd", _BY_KAFKA),
    (b"\x04\x22\x4d\x18", "compressed by lz4", _BY_KAFKA),
    (b"\x82SNAPPY\x00", "compressed by snappy", _BY_KAFKA),
    (b"BZh", "compressed by bzip2", _BY_KAFKA),
    (b"PK\x03\x04", "a zip file", _BY_KAFKA),
    (b"\xac\xed\x00\x05", "a serialised Java object", "send Avro by the contract"),
)
_BOM = b"\xef\xbb\xbf"
_BRACKETS = {(b"{", b"}"), (b"[", b"]")}
_AS_JSON = (
    "send Avro by the contract, or JSON over HTTP to ingest, or import lines of it by "
    "batch --input"
)
_AS_AVRO = "send Avro by the contract"
#: Text is recognised by its beginning; a payload may have megabytes.
_TEXT_BYTES = 1_024


def foreign_form(payload: bytes) -> str | None:
    """Say what a payload without Confluent's header is, and what to do about it.

    Args:
        payload: Not empty.

    Returns:
        None if the bytes match no known form.
    """
    for beginning, form, fix in _BEGINNINGS:
        if payload.startswith(beginning):
            return f"it is {form}: {fix}"
    text = payload.removeprefix(_BOM).strip()
    if (text[:1], text[-1:]) in _BRACKETS:
        return f"it is JSON: {_AS_JSON}"
    if (text[:1], text[-1:]) == (b"<", b">"):
        return f"it is XML: {_AS_AVRO}"
    if _is_text(text[:_TEXT_BYTES]):
        return f"it is text: {_AS_AVRO}"
    return None


def other_framing(contract: Contract, framing: Framing) -> str:
    """Say that a payload is an event of a contract in another framing."""
    if framing is Framing.RAW:
        return (
            f"it is {contract.reference} without a schema id: {_BY_REGISTRY}, or "
            f"write framing: {framing}"
        )
    return f"it is {contract.reference} in another framing: write framing: {framing}"


def _is_text(beginning: bytes) -> bool:
    try:
        # A beginning that is cut in the middle of a character is still text.
        text, _ = codecs.utf_8_decode(beginning, "strict", False)  # noqa: FBT003
    except UnicodeDecodeError:
        return False
    return bool(text) and all(one.isprintable() or one in "\t\r\n" for one in text)
