"""Tell what a Kafka value is written in.

A value is JSON only if the project's strict reader accepts it. Protobuf and unknown
Avro are guesses, because their bytes do not say what they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum

from tallyweir.schemas.codec import EventRecord, decode
from tallyweir.schemas.contract import Contract
from tallyweir.schemas.errors import DecodeError
from tallyweir.schemas.formats.json.json_text import Value, parse_document

_MAGIC = 0
_HEADER_BYTES = 5
_SINGLE_OBJECT = b"\xc3\x01"
_BOM = b"\xef\xbb\xbf"
_VARINT_BYTES_MAX = 10
#: The bytes of a field's value by its Protobuf wire type; 0 and 2 say it themselves.
_FIXED_BYTES = {1: 8, 5: 4}
_VARINT, _DELIMITED = 0, 2
_CONNECT_NAMES = frozenset({"schema", "payload"})


class ValueKind(StrEnum):
    """What a value is written in, as the report calls it."""

    JSON = "JSON"
    BROKEN_JSON = "JSON that cannot be read exactly"
    JSON_ARRAY = "JSON arrays"
    DEBEZIUM = "Debezium envelopes"
    DEBEZIUM_SCHEMA = "Debezium envelopes with their schema part"
    CONNECT_SCHEMA = "Kafka Connect's JSON with its schema part"
    CLOUD_EVENT = "CloudEvents as JSON"
    AVRO = "Avro in Confluent's framing"
    FRAMED_JSON = "JSON Schema in Confluent's framing"
    FRAMED_PROTOBUF = "Protobuf in Confluent's framing (a guess)"
    SINGLE_OBJECT = "Avro in its single-object encoding"
    TEXT = "text"
    BYTES = "bytes"


#: The kinds whose documents are read as they are.
DOCUMENTS = (ValueKind.JSON, ValueKind.CLOUD_EVENT)
#: The kinds that ``envelope: debezium`` reads.
CHANGES = (ValueKind.DEBEZIUM, ValueKind.DEBEZIUM_SCHEMA)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenValue:
    """What was seen of a value.

    Attributes:
        document: The object, if the value is JSON.
        schema_id: The id in Confluent's framing.
        contract: The contract with that id, if it is known.
        record: The event's fields, if the contract could read it.
        fault: Why the value is no event although its kind is known.
    """

    kind: ValueKind
    document: dict[str, Value] | None = None
    schema_id: int | None = None
    contract: Contract | None = None
    record: EventRecord | None = None
    fault: DecodeError | None = None


def classify(value: bytes, contracts: Mapping[int, Contract]) -> SeenValue:
    """Tell what a value is written in.

    Args:
        value: Not a tombstone.
        contracts: The known contracts by schema id.
    """
    if len(value) >= _HEADER_BYTES and value[0] == _MAGIC:
        return _classify_framed(value, contracts)
    if value.startswith(_SINGLE_OBJECT):
        return SeenValue(kind=ValueKind.SINGLE_OBJECT)
    begin = value.removeprefix(_BOM).lstrip(b" \t\r\n")[:1]
    if begin == b"{":
        return _classify_document(value)
    if begin == b"[" and _is_json(value):
        return SeenValue(kind=ValueKind.JSON_ARRAY)
    return SeenValue(kind=ValueKind.TEXT if is_text(value) else ValueKind.BYTES)


def is_text(value: bytes) -> bool:
    """Whether bytes are UTF-8 that people can read; empty bytes are not."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return False
    return bool(text) and all(one.isprintable() or one in "\t\r\n" for one in text)


def _classify_document(value: bytes) -> SeenValue:
    try:
        document = parse_document(value)
    except DecodeError as fault:
        return SeenValue(kind=ValueKind.BROKEN_JSON, fault=fault)
    return SeenValue(kind=_kind_of(document), document=document)


def are_plain(names: AbstractSet[str]) -> bool:
    """Tell whether each document that has some of these fields only is plain JSON."""
    if names >= _CONNECT_NAMES:
        return False
    return _kind_of({name: {} for name in names}) is ValueKind.JSON


def _kind_of(document: dict[str, Value]) -> ValueKind:
    names = document.keys()
    if names == _CONNECT_NAMES:
        inner = document["payload"]
        if isinstance(inner, dict) and _is_envelope(inner):
            return ValueKind.DEBEZIUM_SCHEMA
        if isinstance(document["schema"], dict):
            return ValueKind.CONNECT_SCHEMA
    if _is_envelope(document):
        return ValueKind.DEBEZIUM
    if names >= {"specversion", "id", "source", "type"}:
        return ValueKind.CLOUD_EVENT
    return ValueKind.JSON


def _is_envelope(document: dict[str, Value]) -> bool:
    names = document.keys()
    return names >= {"op", "source"} and bool(names & {"before", "after"})


def _is_json(value: bytes) -> bool:
    try:
        json.loads(value)
    except (ValueError, RecursionError):
        return False
    return True


def _classify_framed(value: bytes, contracts: Mapping[int, Contract]) -> SeenValue:
    schema_id = int.from_bytes(value[1:_HEADER_BYTES], "big", signed=True)
    contract = contracts.get(schema_id)
    if contract is not None:
        try:
            record = decode(value, {schema_id: contract})
        except DecodeError as fault:
            return SeenValue(
                kind=ValueKind.AVRO,
                schema_id=schema_id,
                contract=contract,
                fault=fault,
            )
        return SeenValue(
            kind=ValueKind.AVRO, schema_id=schema_id, contract=contract, record=record
        )
    if schema_id <= 0:
        return SeenValue(kind=ValueKind.BYTES)
    body = value[_HEADER_BYTES:]
    kind = ValueKind.AVRO
    if body.lstrip()[:1] == b"{" and _is_json(body):
        kind = ValueKind.FRAMED_JSON
    elif body[:1] == b"\0" and _is_protobuf(body[1:]):
        # The first byte says that the message is the first of its file.
        kind = ValueKind.FRAMED_PROTOBUF
    return SeenValue(kind=kind, schema_id=schema_id)


def _is_protobuf(body: bytes) -> bool:
    """Whether bytes are fields of Protobuf up to the last one."""
    at = 0
    while at < len(body):
        tag, at = _read_varint(body, at)
        wire = tag & 7
        if tag >> 3 == 0:
            return False
        if wire == _VARINT:
            _, at = _read_varint(body, at)
        elif wire == _DELIMITED:
            length, at = _read_varint(body, at)
            at += length
        elif wire in _FIXED_BYTES:
            at += _FIXED_BYTES[wire]
        else:
            return False
    return at == len(body) and at > 0


def _read_varint(body: bytes, at: int) -> tuple[int, int]:
    """Return a number and the place behind it, which is beyond the end if it fails."""
    number = 0
    for index in range(_VARINT_BYTES_MAX):
        if at + index >= len(body):
            break
        byte = body[at + index]
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:  # noqa: PLR2004 - the bit that says that more follow
            return number, at + index + 1
    return 0, len(body) + 1
