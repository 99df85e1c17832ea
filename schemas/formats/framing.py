"""What stands in front of a value: which contract wrote it.

Kafka carries only bytes. A ``Framing`` says how the bytes of a payload name their
writer, so that a topic can hold several versions at once. It is the one place that
takes a frame off.

Confluent's wire format is one magic byte, four bytes of schema id, the body. Ids are
big-endian and positive. Avro's single-object encoding is the two bytes C3 01, eight
bytes that are the CRC-64-AVRO of the writer's schema in canonical form, the body. A raw
payload is a body alone, so one contract has written all of them.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING

from tallyweir.schemas.errors import DecodeError, ReasonCode

if TYPE_CHECKING:
    from tallyweir.schemas.contract import Contract

MAGIC = 0
HEADER_BYTES = 5
SINGLE_OBJECT_MAGIC = b"\xc3\x01"

_HEADER = struct.Struct(">bi")
_FINGERPRINT_BYTES = 8


class Framing(StrEnum):
    """How payloads name their writer."""

    CONFLUENT = "confluent"
    SINGLE_OBJECT = "single_object"
    RAW = "raw"

    @property
    def magic(self) -> bytes:
        """The first bytes of every payload."""
        match self:
            case Framing.CONFLUENT:
                return bytes([MAGIC])
            case Framing.SINGLE_OBJECT:
                return SINGLE_OBJECT_MAGIC
            case Framing.RAW:
                return b""

    @property
    def header_bytes(self) -> int:
        """The number of bytes in front of the body."""
        sizes = {Framing.CONFLUENT: HEADER_BYTES, Framing.RAW: 0}
        return sizes.get(self, len(SINGLE_OBJECT_MAGIC) + _FINGERPRINT_BYTES)

    def header(self, contract: Contract) -> bytes:
        """Return the bytes in front of the bodies that a contract writes."""
        match self:
            case Framing.CONFLUENT:
                return frame(contract.schema_id, b"")
            case Framing.SINGLE_OBJECT:
                return SINGLE_OBJECT_MAGIC + fingerprint(contract.text)
            case Framing.RAW:
                return b""

    def writer_of(
        self, payload: bytes | None, writers: Mapping[int, Contract]
    ) -> Contract:
        """Find the contract that wrote a payload; the body follows ``header_bytes``.

        Raises:
            DecodeError: ``EMPTY_PAYLOAD`` for no bytes (or a Kafka tombstone),
                ``BAD_MAGIC`` for other first bytes, ``MALFORMED`` for a header that
                ends early, ``UNKNOWN_SCHEMA`` for a writer that is none of these.
        """
        if not payload:
            raise DecodeError(ReasonCode.EMPTY_PAYLOAD, "the payload holds no bytes")
        if self is Framing.RAW:
            (writer,) = writers.values()
            return writer
        if self is Framing.CONFLUENT:
            schema_id, _ = split(payload)
            found, name = writers.get(schema_id), f"schema id {schema_id}"
        else:
            found, name = _of_fingerprint(payload, writers)
        if found is not None:
            return found
        known = ", ".join(
            f"{known_id} ({writer.reference})"
            for known_id, writer in sorted(writers.items())
        )
        raise DecodeError(
            ReasonCode.UNKNOWN_SCHEMA,
            f"{name} is not one of those known here: {known}",
        )


def _of_fingerprint(
    payload: bytes, writers: Mapping[int, Contract]
) -> tuple[Contract | None, str]:
    size = Framing.SINGLE_OBJECT.header_bytes
    if not payload.startswith(SINGLE_OBJECT_MAGIC[: len(payload)]):
        raise DecodeError(
            ReasonCode.BAD_MAGIC,
            f"the first bytes are 0x{payload[:2].hex()}, expected "
            f"0x{SINGLE_OBJECT_MAGIC.hex()}",
        )
    if len(payload) < size:
        raise DecodeError(
            ReasonCode.MALFORMED,
            f"fingerprint: the payload ended at byte {len(payload)} of {size}",
        )
    header = payload[:size]
    by_header = {Framing.SINGLE_OBJECT.header(one): one for one in writers.values()}
    number = int.from_bytes(header[len(SINGLE_OBJECT_MAGIC) :], "little")
    return by_header.get(header), f"fingerprint {number:016x}"


@lru_cache(maxsize=256)
def fingerprint(text: str) -> bytes:
    """Return the CRC-64-AVRO of a schema's canonical form, as payloads hold it."""
    # Commands that decode nothing know formats too, and must start fast.
    from fastavro import schema as avro  # noqa: PLC0415

    canonical = avro.to_parsing_canonical_form(json.loads(text))
    return bytes.fromhex(avro.fingerprint(canonical, "CRC-64-AVRO"))


def frame(schema_id: int, body: bytes) -> bytes:
    """Put Confluent's header in front of an Avro body."""
    return _HEADER.pack(MAGIC, schema_id) + body


def split(payload: bytes | None) -> tuple[int, bytes]:
    """Take a payload of Confluent's framing apart into its schema id and its Avro body.

    Raises:
        DecodeError: ``EMPTY_PAYLOAD`` for no bytes (or a Kafka tombstone),
            ``BAD_MAGIC`` for another first byte, ``MALFORMED`` for a header that
            ends early.
    """
    if not payload:
        raise DecodeError(ReasonCode.EMPTY_PAYLOAD, "the payload holds no bytes")
    if payload[0] != MAGIC:
        raise DecodeError(
            ReasonCode.BAD_MAGIC,
            f"the first byte is 0x{payload[0]:02x}, expected 0x{MAGIC:02x}",
        )
    if len(payload) < HEADER_BYTES:
        raise DecodeError(
            ReasonCode.MALFORMED,
            f"schema id: the payload ended at byte {len(payload)} of {HEADER_BYTES}",
        )
    _, schema_id = _HEADER.unpack_from(payload)
    return schema_id, payload[HEADER_BYTES:]
