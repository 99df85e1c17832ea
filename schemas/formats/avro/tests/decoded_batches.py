"""What a decoded batch must be: by the strict decoder, and by fastavro's resolution."""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
import math
import struct
import uuid
from collections.abc import Sequence
from decimal import Decimal

import fastavro
import numpy as np
import pyarrow as pa

from tallyweir.schemas.codec import diagnose
from tallyweir.schemas.contract import Contract
from tallyweir.schemas.event_contracts import EventContract, EventContracts
from tallyweir.schemas.formats.avro.column_decoder import ColumnDecoder
from tallyweir.schemas.formats.avro.tests.made_payloads import encoded_number
from tallyweir.schemas.formats.decoded_columns import DecodedEvents
from tallyweir.schemas.formats.framing import frame, split
from tallyweir.schemas.tests.strategies import (
    CHANGES,
    EvolvedContracts,
    contract_of,
)

Payloads = Sequence[bytes | None]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
#: The names of the branches of the unions in ``strategies``, some with a number behind.
_BRANCH_NAMES = {"int", "long", "float", "double", "string", "bytes", "boolean"} | {
    "array",
    *(f"{name}{n}" for name in "LP" for n in ("", *range(10))),
}

#: The types that a column may have.
KINDS = [written for written, read in CHANGES if written == read]
#: A text that is no UTF-8, with its length.
BAD_TEXT = encoded_number(2) + b"a\xff"


def shortened(kind: object) -> str:
    """How a test's name tells a type."""
    return str(kind)[:60]


def only(contract: Contract) -> EventContracts:
    """The contracts of a pipeline that reads one, of one version."""
    writers = {contract.schema_id: contract}
    return EventContracts((EventContract(contract=contract, writers=writers),))


def one_field(kind: object) -> Contract:
    """A contract of the single field ``f``."""
    return contract_of(
        {"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}]}
    )


def framed(contract: Contract, *bodies: bytes) -> list[bytes]:
    """Payloads of a contract."""
    return [frame(contract.schema_id, body) for body in bodies]


def are_events(contract: Contract, payloads: Payloads, *wanted: str) -> list[bool]:
    """Which payloads the decoder takes for events."""
    decoder = ColumnDecoder(only(contract), wanted)
    seen: list[bool] = decoder.decode(pa.array(payloads, pa.binary())).is_event.tolist()
    return seen


def are_strictly_events(contracts: EventContracts, payloads: Payloads) -> list[bool]:
    """Which payloads the strict decoder takes for events."""
    return [diagnose(payload, contracts.writers) is None for payload in payloads]


def resolved(contracts: EventContracts, payload: bytes) -> dict[str, object]:
    """What fastavro reads from an event with the schema of its reader."""
    schema_id, body = split(payload)
    (one,) = (one for one in contracts.each if schema_id in one.writers)
    writer = fastavro.parse_schema(json.loads(one.writers[schema_id].text))
    reader = fastavro.parse_schema(json.loads(one.contract.text))
    found = fastavro.schemaless_reader(io.BytesIO(body), writer, reader)
    assert isinstance(found, dict)
    declared = json.loads(one.contract.text)["fields"]
    kinds = {field["name"]: field["type"] for field in declared}
    return {name: resolved_column(kinds[name], value) for name, value in found.items()}


def resolved_column(kind: object, value: object) -> object:
    """What a column holds of a value that fastavro has resolved.

    fastavro itself knows neither durations, nor nanoseconds, nor UUIDs of bytes, and
    does not name the branch of a union.
    """
    column = value
    match kind, value:
        case [*branches], _ if "null" in branches and len(branches) == 2:
            (kind,) = (one for one in branches if one != "null")
            column = None if value is None else resolved_column(kind, value)
        case {"logicalType": "timestamp-nanos"}, int():
            column = _EPOCH + dt.timedelta(microseconds=value // 1_000)
        case {"logicalType": "local-timestamp-nanos"}, int():
            since = dt.timedelta(microseconds=value // 1_000)
            column = _EPOCH.replace(tzinfo=None) + since
        case {"logicalType": "uuid", "type": "fixed"}, bytes():
            column = uuid.UUID(bytes=value)
        case {"logicalType": "duration"}, bytes():
            months, days, millis = struct.unpack("<III", value)
            column = f"P{months}M{days}DT{millis // 1000}.{millis % 1000:03}S"
        case {"logicalType": "decimal", "precision": int(digits)}, Decimal():
            column = f"{value:f}" if digits > 38 else value
        case _, dt.time():
            column = value.isoformat("microseconds")
    return column


def plain(value: object) -> object:
    """A nested value as JSON has it, but without the names of branches."""
    written = value
    match value:
        case dict() if len(value) == 1 and next(iter(value)) in _BRANCH_NAMES:
            written = plain(next(iter(value.values())))
        case dict():
            written = {name: plain(one) for name, one in value.items()}
        case list():
            written = [plain(one) for one in value]
        case bytes():
            written = base64.b64encode(value).decode()
        case float():
            # A float of four bytes has two decimal spellings.
            names = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}
            written = names.get(str(value)) or Decimal(repr(value))
        case dt.date() | dt.time() | uuid.UUID():
            written = _time_text(value)
    return written


def _time_text(value: dt.date | dt.time | uuid.UUID) -> str:
    if isinstance(value, dt.datetime):
        parts = "microseconds" if value.microsecond % 1000 else "milliseconds"
        written = value.replace(tzinfo=None).isoformat(timespec=parts)
        return written + ("" if value.tzinfo is None else "Z")
    if isinstance(value, dt.time):
        return value.isoformat("microseconds")
    return str(value)


def is_same_json(seen: str, expected: object) -> bool:
    """Compare the JSON of a column with what fastavro has resolved."""
    read = plain(json.loads(seen, parse_float=Decimal))
    return _is_close(read, plain(expected))


def _is_close(one: object, other: object) -> bool:
    match one, other:
        case dict(), dict():
            return one.keys() == other.keys() and all(
                _is_close(value, other[name]) for name, value in one.items()
            )
        case list(), list():
            return len(one) == len(other) and all(map(_is_close, one, other))
        case (Decimal() | int(), Decimal() | int()) if not isinstance(one, bool):
            return one == other or np.float32(one) == np.float32(other)
        case _:
            return one == other


def is_same(seen: object, expected: object) -> bool:
    """Compare a column's value with the strict decoder's."""
    if isinstance(expected, uuid.UUID):
        return uuid.UUID(str(seen)) == expected
    if isinstance(expected, float) and math.isnan(expected):
        return isinstance(seen, float) and math.isnan(seen)
    if isinstance(seen, float) and isinstance(expected, float):
        # Where a float holds less than what was written.
        return seen == expected or seen == float(np.float32(np.int64(expected)))
    return type(seen) is type(expected) and seen == expected


def check(made: EvolvedContracts, payloads: Payloads, seen: DecodedEvents) -> None:
    """Assert that each row is what fastavro and the strict decoder say."""
    contracts = made.contracts
    assert are_strictly_events(contracts, payloads) == seen.is_event.tolist()
    assert made.flat == list(seen.columns)
    for column in seen.columns.values():
        column.validate(full=True)
    values = {name: column.to_pylist() for name, column in seen.columns.items()}
    types = {field.name: field.type for field in contracts.fields}
    for row, payload in enumerate(payloads):
        expected: dict[str, object] = dict.fromkeys(made.flat)
        if seen.is_event[row]:
            assert payload is not None
            is_old = split(payload)[0] % 2 == 1
            expected |= resolved(contracts, payload) | (made.added if is_old else {})
        for name in made.flat:
            found = values[name][row]
            if types[name] == "json" and found is not None:
                assert is_same_json(found, expected[name]), (name, row)
            else:
                assert is_same(found, expected[name]), (name, row)
