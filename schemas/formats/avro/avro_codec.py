"""The compiled form of a contract: writes framed Avro bodies, and reads them strictly.

``read`` returns every record that ``write`` accepts unchanged. ``walk`` accepts only
bodies that follow Avro's rules, so a lenient decoder's guesses never become events.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from tallyweir.schemas.errors import DecodeError, EncodeError, ReasonCode
from tallyweir.schemas.formats.avro.safety import parse_schema
from tallyweir.schemas.formats.avro.strict_walk import Walker, compile_walker
from tallyweir.schemas.formats.avro.wire_format import frame
from tallyweir.schemas.formats.format import EventRecord
from tallyweir.schemas.record_check import MisfitError, compile_check

if TYPE_CHECKING:
    from tallyweir.schemas.contract import Contract


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroCodec:
    """What the events of one contract need, one at a time.

    Attributes:
        write: Writes a record as a framed payload, or raises ``EncodeError``.
        walk: Checks a body.
        walk_fields: Check the fields of a body, in their order.
        read: Reads a body that ``walk`` has checked, or raises ``DecodeError``.
    """

    write: Callable[[EventRecord], bytes]
    walk: Walker
    walk_fields: tuple[Walker, ...]
    read: Callable[[bytes], EventRecord]


def compile_codec(contract: Contract) -> AvroCodec:
    """Return the codec of a contract, compiled once per process."""
    # A string caches its hash; a contract would compute it again for every record.
    return _compile_schema(contract.text, contract.schema_id)


@lru_cache(maxsize=256)
def _compile_schema(text: str, schema_id: int) -> AvroCodec:
    # Commands that decode nothing know formats too, and must start fast.
    import fastavro  # noqa: PLC0415

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

    return AvroCodec(
        write=write,
        walk=compile_walker(tree),
        walk_fields=tuple(
            compile_walker(field.node, field.name) for field in tree.fields
        ),
        read=read,
    )


def _misfit(schema: dict[str, object], cause: Exception) -> EncodeError:
    saw = str(cause) if isinstance(cause, MisfitError) else repr(cause)
    return EncodeError(
        "RECORD_MISFIT",
        saw=f"A record of {schema['name']}: {saw}.",
        why="Readers would not get back the value that was written.",
        fix="Correct the value, or make the field nullable in a new version.",
    )
