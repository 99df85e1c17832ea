"""Avro in Confluent's framing, as a format.

``Avro.decode`` and ``ColumnDecoder`` accept the same payloads: those that follow Avro's
rules to the last byte. The second decodes the events of a running pipeline; the first
serves what looks at one event, and the diagnosis of dead letters.
"""

from __future__ import annotations

import io
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from tallyweir.schemas.errors import DecodeError, ReasonCode
from tallyweir.schemas.formats.avro.avro_codec import compile_codec
from tallyweir.schemas.formats.avro.compatibility import find_incompatibilities
from tallyweir.schemas.formats.avro.damages import DAMAGES
from tallyweir.schemas.formats.avro.foreign_form import foreign_form, unframed_form
from tallyweir.schemas.formats.avro.schema_file import read_schema
from tallyweir.schemas.formats.avro.strict_walk import MalformedError
from tallyweir.schemas.formats.avro.wire_format import HEADER_BYTES, frame, split
from tallyweir.schemas.formats.format import (
    BegunEvent,
    BegunField,
    Damage,
    EventRecord,
    Format,
    Schema,
)
from tallyweir.schemas.schema_tree import Record

if TYPE_CHECKING:
    from tallyweir.schemas.contract import Contract
    from tallyweir.schemas.event_contracts import EventContracts
    from tallyweir.schemas.formats.decoded_columns import EventDecoder

#: The reasons that a payload without a header gets. The second is possible because an
#: Avro body may begin with a zero byte.
_WITHOUT_HEADER = frozenset({ReasonCode.BAD_MAGIC, ReasonCode.UNKNOWN_SCHEMA})


@dataclass(frozen=True, slots=True)
class Avro(Format):
    """Avro bodies, each behind a magic byte and its writer's schema id."""

    suffix: ClassVar[str] = ".avsc"
    names_writers: ClassVar[bool] = True
    media_type: ClassVar[str] = "avro/binary"
    damages: ClassVar[Mapping[str, Damage]] = DAMAGES

    def read_schema(self, content: bytes, path: Path) -> Schema:
        return read_schema(content, path)

    def find_incompatibilities(self, reader: Record, writer: Record) -> list[str]:
        return find_incompatibilities(reader, writer)

    def encode(self, contract: Contract, record: EventRecord) -> bytes:
        return compile_codec(contract).write(record)

    def decode(
        self, payload: bytes | None, writers: Mapping[int, Contract]
    ) -> EventRecord:
        schema_id, body = split(payload)
        contract = writers.get(schema_id)
        if contract is None:
            known = ", ".join(
                f"{known_id} ({writer.reference})"
                for known_id, writer in sorted(writers.items())
            )
            raise DecodeError(
                ReasonCode.UNKNOWN_SCHEMA,
                f"schema id {schema_id} is not one of those known here: {known}",
            )
        assert payload is not None
        codec = compile_codec(contract)
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
        self, payload: bytes | None, writers: Mapping[int, Contract]
    ) -> DecodeError | None:
        error = Format.diagnose(self, payload, writers)
        if error is None or error.reason_code not in _WITHOUT_HEADER:
            return error
        assert payload
        form = foreign_form(payload) or _unframed_form(payload, writers)
        if form is None:
            return error
        return DecodeError(error.reason_code, f"{error.detail}; {form}")

    def decode_body(self, body: bytes, contract: Contract) -> EventRecord:
        payload = frame(contract.schema_id, body)
        return self.decode(payload, {contract.schema_id: contract})

    def schema_id(self, payload: bytes | None) -> int | None:
        try:
            return split(payload)[0]
        except DecodeError:
            return None

    def read_begun(
        self, payload: bytes, writer: Contract, *, until: str | None = None
    ) -> BegunEvent:
        position = HEADER_BYTES
        places: list[tuple[int, int]] = []
        failed_at = None
        walks = compile_codec(writer).walk_fields
        for field, walk in zip(writer.fields, walks, strict=True):
            try:
                end = walk(payload, position)
            except MalformedError:
                failed_at = position
                break
            places.append((position, end))
            position = end
            if field.name == until:
                break
        values = _read_values(payload[HEADER_BYTES:position], writer, len(places))
        fields = tuple(
            BegunField(from_byte=begin, until_byte=end, value=values.get(field.name))
            for field, (begin, end) in zip(writer.fields, places, strict=False)
        )
        return BegunEvent(fields=fields, failed_at=failed_at)

    def decoder(
        self, contracts: EventContracts, wanted: Collection[str]
    ) -> EventDecoder:
        # Services know formats, but their image has no Arrow.
        from tallyweir.schemas.formats.avro.column_decoder import ColumnDecoder  # noqa: PLC0415

        return ColumnDecoder(contracts, wanted)

    def spark_expression(
        self, contract: Contract, writers: Mapping[int, Contract], column: str
    ) -> str:
        header = f"substring({column}, 1, {HEADER_BYTES})"
        body = f"substring({column}, {HEADER_BYTES + 1})"
        cases = " ".join(
            f"WHEN {header} = X'{frame(schema_id, b'').hex()}' "
            f"THEN {_from_avro(body, contract, writer)}"
            for schema_id, writer in writers.items()
        )
        return f"CASE {cases} END"


def _unframed_form(payload: bytes, writers: Mapping[int, Contract]) -> str | None:
    """Tell whether a payload is an event of a contract that lacks only the header."""
    for _, contract in sorted(writers.items()):
        try:
            end = compile_codec(contract).walk(payload, 0)
        except MalformedError:
            continue
        if end == len(payload):
            return unframed_form(contract)
    return None


def _read_values(body: bytes, writer: Contract, count: int) -> Mapping[str, Any]:
    import fastavro  # noqa: PLC0415 - as in ``avro_codec``

    # The first fields make a valid record, because a named type is declared at its
    # first use.
    schema = json.loads(writer.text)
    schema["fields"] = schema["fields"][:count]
    try:
        parsed = fastavro.parse_schema(schema)
        read = fastavro.schemaless_reader(io.BytesIO(body), parsed, None)
    except Exception:  # noqa: BLE001 - what the walker passed is to be shown, not judged
        return {}
    return cast(Mapping[str, Any], read)


def _from_avro(body: str, contract: Contract, writer: Contract) -> str:
    options = {"mode": "PERMISSIVE"}
    if writer.schema_id != contract.schema_id:
        options["avroSchema"] = contract.text
    pairs = ", ".join(f"{_literal(k)}, {_literal(v)}" for k, v in options.items())
    return f"from_avro({body}, {_literal(writer.text)}, map({pairs}))"


def _literal(text: str) -> str:
    """Write a text as a literal of Spark SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
