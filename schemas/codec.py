"""Encode records as framed Avro bytes, and decode them strictly.

Invariant: ``decode`` returns every record that ``encode`` accepts unchanged.
``decode`` accepts only payloads that follow Avro's rules to the last byte, so a lenient
decoder's guesses never become events.

``column_decoder`` decodes the events of a running pipeline, many at a time and just as
strictly. ``decode`` serves producers' tests and the diagnosis of dead letters.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import fastavro

from schemas.contract import Contract
from schemas.errors import DecodeError, EncodeError, ReasonCode
from schemas.formats.avro.foreign_form import foreign_form, unframed_form
from schemas.formats.avro.safety import parse_schema
from schemas.formats.avro.strict_walk import MalformedError, Walker, compile_walker
from schemas.formats.avro.wire_format import HEADER_BYTES, frame, split
from schemas.record_check import MisfitError, compile_check

EventRecord = dict[str, object]

#: The reasons that a payload without a header gets. The second is possible because an
#: Avro body may begin with a zero byte.
_WITHOUT_HEADER = frozenset({ReasonCode.BAD_MAGIC, ReasonCode.UNKNOWN_SCHEMA})


def encode(contract: Contract, record: EventRecord) -> bytes:
    """Write one record as a framed payload.

    Instants are aware datetimes, or whole numbers in the field's unit.

    Raises:
        EncodeError: The record does not fit; the error names the field.
    """
    return _compile(contract).encode(record)


def encode_many(contract: Contract, records: Iterable[EventRecord]) -> Iterator[bytes]:
    """Write each record as a framed payload, in order.

    Raises:
        EncodeError: A record does not fit; the payloads before it were yielded.
    """
    return map(_compile(contract).encode, records)


def decode(
    payload: bytes | None, contracts_by_id: Mapping[int, Contract]
) -> EventRecord:
    """Read one payload as the contract that its frame names wrote it.

    Args:
        payload: A Kafka value; None is a tombstone.
        contracts_by_id: As ``versions_of`` returns it.

    Raises:
        DecodeError: The payload is not an event. No bytes make this function raise
            another error.
    """
    schema_id, body = split(payload)
    contract = contracts_by_id.get(schema_id)
    if contract is None:
        known = ", ".join(
            f"{known_id} ({known_contract.reference})"
            for known_id, known_contract in sorted(contracts_by_id.items())
        )
        raise DecodeError(
            ReasonCode.UNKNOWN_SCHEMA,
            f"schema id {schema_id} is not one of those known here: {known}",
        )
    assert payload is not None
    codec = _compile(contract)
    try:
        end = codec.walk(payload, HEADER_BYTES)
    except MalformedError as exc:
        raise DecodeError(ReasonCode.MALFORMED, str(exc)) from exc
    if end != len(payload):
        raise DecodeError(
            ReasonCode.TRAILING_BYTES,
            f"the event ended at byte {end} of {len(payload)}",
        )
    return codec.read(body)


def diagnose(
    payload: bytes | None, contracts_by_id: Mapping[int, Contract]
) -> DecodeError | None:
    """Say why a payload is not an event, for its dead letter; None if it is one."""
    try:
        decode(payload, contracts_by_id)
    except DecodeError as exc:
        form = None
        if exc.reason_code in _WITHOUT_HEADER:
            assert payload
            form = foreign_form(payload) or _unframed_form(payload, contracts_by_id)
        if form is None:
            return exc
        return DecodeError(exc.reason_code, f"{exc.detail}; {form}")
    return None


def _unframed_form(
    payload: bytes, contracts_by_id: Mapping[int, Contract]
) -> str | None:
    """Tell whether a payload is an event of a contract that lacks only the header."""
    for _, contract in sorted(contracts_by_id.items()):
        try:
            end = _compile(contract).walk(payload, 0)
        except MalformedError:
            continue
        if end == len(payload):
            return unframed_form(contract)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Codec:
    encode: Callable[[EventRecord], bytes]
    walk: Walker
    read: Callable[[bytes], EventRecord]


def _compile(contract: Contract) -> _Codec:
    # A string caches its hash; a contract would compute it again for every record.
    return _compile_schema(contract.text, contract.schema_id)


@lru_cache(maxsize=256)
def _compile_schema(text: str, schema_id: int) -> _Codec:
    schema = json.loads(text)
    tree = parse_schema(schema)
    parsed = fastavro.parse_schema(schema)
    check = compile_check(tree)
    header = frame(schema_id, b"")
    write_body = fastavro.schemaless_writer
    read_body = fastavro.schemaless_reader

    def write(record: EventRecord) -> bytes:
        stream = io.BytesIO()
        stream.write(header)
        try:
            check(record)
            write_body(stream, parsed, record)
        except Exception as exc:
            # fastavro refuses lone surrogates and decimals with a foreign exponent,
            # with errors of any class.
            raise _misfit(schema, exc) from exc
        return stream.getvalue()

    def read(body: bytes) -> EventRecord:
        try:
            # The contract is a record, so fastavro returns a record.
            return cast(EventRecord, read_body(io.BytesIO(body), parsed, None))
        except Exception as exc:
            # The walker has already refused every bad payload. If fastavro raises
            # all the same, a dead letter must not stop the reader.
            raise DecodeError(
                ReasonCode.MALFORMED, f"{type(exc).__name__}: {exc}"
            ) from exc

    return _Codec(encode=write, walk=compile_walker(tree), read=read)


def _misfit(schema: dict[str, object], cause: Exception) -> EncodeError:
    saw = str(cause) if isinstance(cause, MisfitError) else repr(cause)
    return EncodeError(
        "RECORD_MISFIT",
        saw=f"A record of {schema['name']}: {saw}.",
        why="It could not be read back as it was meant.",
        fix="Correct the value, or make the field nullable in a new version.",
    )
