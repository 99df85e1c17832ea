"""The events that the driver's tests send: readings of sensors, good and broken."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tallyweir.schemas.codec import EventRecord, encode
from tallyweir.schemas.contract import Contract, load_contract

#: Inside of the year that the tests' events happen in; long past, so that no event
#: time is in the future whenever the tests run.
NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)

READING: dict[str, object] = {
    "type": "record",
    "name": "Reading",
    "fields": [
        {"name": "sensor", "type": "string"},
        {"name": "event_id", "type": ["null", "string"], "default": None},
        {
            "name": "at",
            "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}],
            "default": None,
        },
        {"name": "amount", "type": "int"},
        {"name": "site", "type": ["null", "string"], "default": None},
        {
            "name": "grade",
            "type": {"type": "enum", "name": "Grade", "symbols": ["LOW", "HIGH"]},
        },
        {"name": "divisor", "type": "int"},
    ],
}


def write_contract(path: Path, schema: dict[str, object] = READING) -> Contract:
    """Write a contract's file and load it."""
    path.write_text(json.dumps(schema))
    return load_contract(str(path.absolute()))


def reading(**fields: object) -> EventRecord:
    """Make a good reading, but for the fields that are given."""
    return {
        "sensor": "s1",
        "event_id": "r1",
        "at": NOON,
        "amount": 1,
        "site": None,
        "grade": "LOW",
        "divisor": 1,
        **fields,
    }


def at_microseconds(payload: bytes, at_us: int) -> bytes:
    """Put a moment into a reading of ``NOON`` that no careful producer would send."""
    noon_us = int(NOON.timestamp()) * 1_000_000
    assert payload.count(_varint(noon_us)) == 1
    return payload.replace(_varint(noon_us), _varint(at_us))


def _varint(number: int) -> bytes:
    """Write a number as Avro does: zig-zag, seven bits a byte, lowest first."""
    rest = number << 1 if number >= 0 else ((-number) << 1) - 1
    written = bytearray()
    while rest > 0x7F:
        written.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*written, rest])


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A record to send, and what must become of it.

    Attributes:
        value: The Kafka value; None is a tombstone.
        partition: Where it goes.
        fate: ``committed``, ``duplicate``, ``late``, ``expired``, ``filtered``, or the
            reason code of its dead letter.
        key: The Kafka key.
        headers: Kafka headers.
        timestamp_ms: The producer's time; 0 for now.
    """

    value: bytes | None
    partition: int = 0
    fate: str = "committed"
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int = 0


def sent(
    contract: Contract, *, partition: int = 0, fate: str = "committed", **fields: object
) -> Sent:
    """Encode a reading, good but for the fields that are given."""
    return Sent(
        value=encode(contract, reading(**fields)), partition=partition, fate=fate
    )
