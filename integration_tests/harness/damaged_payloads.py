"""Avro payloads damaged by chance, and what must become of each.

What is expected is computed here, from the strict decoder and a few lines of plain
Python, and from nothing that the driver uses to decide.
"""

from __future__ import annotations

import datetime as dt
import random
import uuid
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from integration_tests.harness.readings import NOON, Sent
from tallyweir.schemas.codec import EventRecord, decode, encode
from tallyweir.schemas.contract import Contract
from tallyweir.schemas.errors import DecodeError
from tallyweir.schemas.formats.framing import HEADER_BYTES, frame

#: The fate of a text that is no UTF-8: the first check that meets it names it.
ANY_REASON = "dead, for any reason"

_ID_BYTES_MAX = 256
_EARLIEST_YEAR = 1000

_FLAT: dict[str, object] = {
    "type": "record",
    "name": "Flat",
    "fields": [
        {"name": "event_id", "type": ["null", "string"]},
        {"name": "flag", "type": "boolean"},
        {
            "name": "at",
            "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}],
        },
        {"name": "small", "type": "int"},
        {"name": "large", "type": "long"},
        {"name": "single", "type": "float"},
        {"name": "double", "type": ["null", "double"]},
        {"name": "raw", "type": "bytes"},
        {"name": "text", "type": ["string", "null"]},
        {"name": "digest", "type": {"type": "fixed", "name": "Digest", "size": 4}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {
            "name": "local",
            "type": ["null", {"type": "long", "logicalType": "local-timestamp-micros"}],
        },
        {"name": "seen", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "price",
            "type": {
                "type": "bytes",
                "logicalType": "decimal",
                "precision": 10,
                "scale": 2,
            },
        },
        {"name": "token", "type": {"type": "string", "logicalType": "uuid"}},
        {
            "name": "grade",
            "type": {"type": "enum", "name": "Grade", "symbols": ["LOW", "HIGH"]},
        },
    ],
}

_PLACE = {
    "type": "record",
    "name": "Place",
    "fields": [
        {"name": "city", "type": ["null", "string"]},
        {"name": "heights", "type": {"type": "array", "items": "double"}},
        {
            "name": "sensors",
            "type": ["null", {"type": "map", "values": ["null", "long"]}],
        },
    ],
}

_NESTED: dict[str, object] = {
    "type": "record",
    "name": "Nested",
    "fields": [
        {"name": "event_id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "flag", "type": ["null", "boolean"]},
        {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
        {
            "name": "places",
            "type": ["null", {"type": "array", "items": ["null", _PLACE]}],
        },
        {
            "name": "levels",
            "type": {
                "type": "map",
                "values": {"type": "array", "items": {"type": "map", "values": "int"}},
            },
        },
    ],
}


def _flat_record(chance: random.Random) -> EventRecord:
    """Make a record without nested fields, with an ID of its own."""
    whole = chance.choice((6, 14, 28, 31))
    return {
        "event_id": f"{chance.getrandbits(64):016x}",
        "flag": chance.random() < 0.5,
        "at": NOON - dt.timedelta(seconds=chance.randrange(86_400)),
        "small": chance.getrandbits(whole) - (1 << (whole - 1)),
        "large": chance.getrandbits(64) - (1 << 63),
        "single": chance.randrange(100) / 4,
        "double": chance.choice((None, chance.random())),
        "raw": chance.randbytes(chance.randrange(8)),
        "text": chance.choice((None, "", "Ünïcode ☃", "x" * chance.randrange(80))),
        "digest": chance.randbytes(4),
        "day": dt.date(1600, 2, 29) + dt.timedelta(days=chance.randrange(200_000)),
        "local": chance.choice((None, NOON.replace(tzinfo=None))),
        "seen": NOON,
        "price": Decimal(chance.randrange(-(10**10) + 1, 10**10)).scaleb(-2),
        "token": str(uuid.UUID(int=chance.getrandbits(128))),
        "grade": chance.choice(("LOW", "HIGH")),
    }


def _nested_record(chance: random.Random) -> EventRecord:
    """Make a record of records, arrays and maps, with an ID of its own."""
    place = {
        "city": chance.choice((None, "Überlingen")),
        "heights": [chance.random() for _ in range(chance.randrange(4))],
        "sensors": chance.choice((None, {"a": None, "b": chance.getrandbits(40)})),
    }
    return {
        "event_id": chance.getrandbits(64) - (1 << 63),
        "at": NOON - dt.timedelta(seconds=chance.randrange(86_400)),
        "flag": chance.choice((None, True, False)),
        "tags": [chance.choice((None, "a", "☃")) for _ in range(chance.randrange(5))],
        "places": chance.choice((None, [None, place], [place] * 3)),
        "levels": {"x": [{"y": 1, "z": -(2**31)}, {}], "": []},
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class EventKind:
    """Events of one schema.

    Attributes:
        name: What tests call it.
        schema: Of Avro.
        make_record: Makes a good event by chance, with an ID of its own.
    """

    name: str
    schema: dict[str, object]
    make_record: Callable[[random.Random], EventRecord]


#: Its rows are decoded strictly where the columns do not speak for themselves.
FLAT = EventKind(name="flat", schema=_FLAT, make_record=_flat_record)
#: Each of its rows is decoded strictly.
NESTED = EventKind(name="nested", schema=_NESTED, make_record=_nested_record)


def damaged_payloads(
    contract: Contract,
    make_record: Callable[[random.Random], EventRecord],
    chance: random.Random,
) -> Iterator[bytes | None]:
    """Yield payloads without end: most damaged, some good, some sent before."""
    good = encode(contract, make_record(chance))
    sent_before = [good]
    while True:
        other, good = good, encode(contract, make_record(chance))
        lot = chance.random()
        payload: bytes | None = good
        if lot < 0.04:
            payload = chance.choice(sent_before)
        elif lot < 0.9:
            payload = chance.choice(_DAMAGES)(good, other, chance)
            # Most later damage would only be noticed behind the earlier one.
            if payload and chance.random() < 0.1:
                payload = chance.choice(_DAMAGES)(payload, other, chance)
        if payload:
            sent_before[chance.randrange(50) :] = [payload]
        yield payload


def _flip_bits(good: bytes, _: bytes, chance: random.Random) -> bytes:
    damaged = bytearray(good)
    for _bit in range(chance.choice((1, 1, 1, 2, 8))):
        damaged[chance.randrange(len(good))] ^= 1 << chance.randrange(8)
    return bytes(damaged)


def _set_byte(good: bytes, _: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(min(HEADER_BYTES, len(good) - 1), len(good))
    edge = chance.choice((0x00, 0x01, 0x02, 0x7F, 0x80, 0xFE, 0xFF))
    return good[:at] + bytes([edge]) + good[at + 1 :]


def _truncate(good: bytes, _: bytes, chance: random.Random) -> bytes:
    return good[: chance.randrange(len(good))]


def _insert(good: bytes, _: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(good) + 1)
    return good[:at] + chance.randbytes(chance.choice((1, 1, 2, 5, 40))) + good[at:]


def _remove(good: bytes, _: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(good))
    return good[:at] + good[at + chance.choice((1, 1, 2, 5)) :]


def _put_number(good: bytes, _: bytes, chance: random.Random) -> bytes:
    """Overwrite or insert a number: huge, negative, overflowing, or endless."""
    at = chance.randrange(len(good) + 1)
    number = chance.choice(
        (
            b"\xfe\xff\xff\xff\x0f",  # 2 GiB
            b"\xff\xff\xff\xff\x0f",  # -2 GiB
            b"\xff\xff\xff\xff\x7f",  # more bits than an int has
            b"\xfe" + b"\xff" * 8 + b"\x01",  # 2**63 - 1
            b"\xff" * 9 + b"\x01",  # -2**63
            b"\xff" * 9 + b"\x7f",  # more bits than a long has
            b"\x80\x80\x80\x00",  # zero, at length
            b"\xff" * 40,
            b"\x01",  # -1
        )
    )
    overwrites = chance.random() < 0.5
    return good[:at] + number + good[at + len(number) * overwrites :]


def _swap_halves(good: bytes, _: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(good))
    body = at + HEADER_BYTES if chance.random() < 0.7 else at
    head = good[:HEADER_BYTES] if body > at else b""
    return head + good[body:] + good[len(head) : body]


def _splice(good: bytes, other: bytes, chance: random.Random) -> bytes:
    return good[: chance.randrange(len(good))] + other[chance.randrange(len(other)) :]


def _wrong_header(good: bytes, _: bytes, chance: random.Random) -> bytes:
    body = good[HEADER_BYTES:]
    return chance.choice(
        (
            chance.randbytes(1) + good[1:],
            chance.randbytes(HEADER_BYTES) + body,
            frame(chance.getrandbits(31), body),
            frame(-1, body),
            body,
        )
    )


def _append(good: bytes, other: bytes, chance: random.Random) -> bytes:
    return good + chance.choice((b"\x00", other, chance.randbytes(3), b"\x00" * 1_000))


def _random_bytes(good: bytes, _: bytes, chance: random.Random) -> bytes:
    noise = chance.randbytes(chance.randrange(200))
    return good[:HEADER_BYTES] + noise if chance.random() < 0.7 else noise


def _open_unions(good: bytes, _: bytes, chance: random.Random) -> bytes:
    """Claim values inside of values inside of values, and never end."""
    levels = bytes([chance.choice((2, 4))]) * chance.choice((20, 1_000, 50_000))
    return good[: chance.randrange(len(good))] + levels


def _nothing(_: bytes, __: bytes, chance: random.Random) -> bytes | None:
    return chance.choice((None, b""))


_DAMAGES: Sequence[Callable[[bytes, bytes, random.Random], bytes | None]] = (
    *(_flip_bits, _flip_bits, _flip_bits, _set_byte, _set_byte, _set_byte),
    *(_truncate, _insert, _remove, _put_number, _put_number, _swap_halves, _splice),
    *(_wrong_header, _append, _random_bytes, _open_unions, _nothing),
)


def with_fates(
    payloads: Sequence[bytes | None],
    contract: Contract,
    *,
    partitions: int,
    oldest: dt.datetime,
    latest: dt.datetime,
) -> list[Sent]:
    """Give each payload a partition, and say what must become of it there.

    Payloads of one ID go to one partition, so that the first of them is the first
    whatever the batches are.

    Args:
        payloads: In the order in which they are sent.
        contract: By which they are read.
        partitions: Of the topic.
        oldest: Events before it have expired.
        latest: Events after it are in the future.
    """
    by_schema_id = {contract.schema_id: contract}
    first: dict[object, bytes] = {}
    records = []
    for payload in payloads:
        fate, event_id = _own_fate(payload, by_schema_id, oldest, latest)
        if fate == "committed":
            assert payload is not None
            if event_id in first:
                is_repeat = first[event_id] == payload
                fate = "duplicate" if is_repeat else "ID_CONFLICT"
            first.setdefault(event_id, payload)
        spread = zlib.crc32(str(event_id).encode())
        records.append(Sent(value=payload, partition=spread % partitions, fate=fate))
    return records


def _own_fate(
    payload: bytes | None,
    by_schema_id: Mapping[int, Contract],
    oldest: dt.datetime,
    latest: dt.datetime,
) -> tuple[str, object]:
    """Return what becomes of a payload that no other has the ID of, and the ID."""
    try:
        record = decode(payload, by_schema_id)
    except DecodeError as error:
        is_text = "the text is no UTF-8" in error.detail
        return ANY_REASON if is_text else str(error.reason_code), payload
    event_id, at = record["event_id"], record["at"]
    assert at is None or isinstance(at, dt.datetime)
    if event_id is None or event_id == "":
        fate = "MISSING_ID"
    elif isinstance(event_id, str) and len(event_id.encode()) > _ID_BYTES_MAX:
        fate = "ID_TOO_LONG"
    elif at is None:
        fate = "MISSING_EVENT_TIME"
    elif at > latest:
        fate = "TIMESTAMP_IN_FUTURE"
    elif at.year < _EARLIEST_YEAR:
        fate = "TIMESTAMP_TOO_OLD"
    elif any(isinstance(value, str) and "\0" in value for value in record.values()):
        fate = "UNSTORABLE_VALUE"
    elif at < oldest:
        fate = "expired"
    elif _holds_nul(record):
        fate = "REJECTED_BY_POSTGRES"
    else:
        fate = "committed"
    return fate, event_id


def _holds_nul(value: object) -> bool:
    """Whether there is a NUL anywhere, which ``jsonb`` refuses."""
    if isinstance(value, Mapping):
        return any(map(_holds_nul, value)) or any(map(_holds_nul, value.values()))
    if isinstance(value, list):
        return any(map(_holds_nul, value))
    return isinstance(value, str) and "\0" in value
