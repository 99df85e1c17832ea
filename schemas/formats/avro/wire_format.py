"""The Confluent wire format: one magic byte, four bytes of schema id, the body.

Kafka carries only bytes. The id says which contract wrote them, so that a topic can
hold several versions at once. Ids are big-endian and positive.
"""

from __future__ import annotations

import struct

from tallyweir.schemas.errors import DecodeError, ReasonCode

MAGIC = 0
HEADER_BYTES = 5

_HEADER = struct.Struct(">bi")


def frame(schema_id: int, body: bytes) -> bytes:
    """Put the header in front of an Avro body."""
    return _HEADER.pack(MAGIC, schema_id) + body


def split(payload: bytes | None) -> tuple[int, bytes]:
    """Take a payload apart into its schema id and its Avro body.

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
