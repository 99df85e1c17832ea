"""Payloads that are one value each: a text, or a whole number.

``text`` is UTF-8 without NUL. ``bigint`` is eight bytes, the highest first, as Kafka's
``LongSerializer`` writes them; digits are text.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from tallyweir.schemas.errors import (
    ContractError,
    DecodeError,
    EncodeError,
    ReasonCode,
)
from tallyweir.schemas.formats.format import (
    BegunEvent,
    BegunField,
    Damage,
    EventRecord,
    Format,
    Schema,
)
from tallyweir.schemas.schema_tree import Primitive, Record, RecordField

if TYPE_CHECKING:
    from tallyweir.schemas.contract import Contract
    from tallyweir.schemas.event_contracts import EventContracts
    from tallyweir.schemas.formats.decoded_columns import EventDecoder

#: The type of the one value, by what pipelines call it.
PLAIN_TYPES: Mapping[str, Primitive] = {
    "text": Primitive(kind="string"),
    "bigint": Primitive(kind="long"),
}
_LONG = struct.Struct(">q")


def plain_schema(kind: str, name: str) -> Schema:
    """Return the schema of payloads that are one value, in a field with a name."""
    field = RecordField(name=name, node=PLAIN_TYPES[kind])
    return Schema(text=kind, tree=Record(name=name, fields=(field,)))


@dataclass(frozen=True, slots=True)
class Plain(Format):
    """One value in each payload; a schema's text says of which type."""

    suffix: ClassVar[str] = ".plain"
    names_writers: ClassVar[bool] = False
    media_type: ClassVar[str] = "text/plain"
    damages: ClassVar[Mapping[str, Damage]] = {}

    def read_schema(self, content: bytes, path: Path, part: str = "") -> Schema:
        del part
        raise ContractError(
            "CONTRACT_MALFORMED",
            saw=f"{path} has {len(content)} bytes.",
            why="A plain value has no file that describes it.",
            fix="Name its type.",
        )

    def find_incompatibilities(self, reader: Record, writer: Record) -> list[str]:
        return [] if reader == writer else ["the value is of another type"]

    def encode(self, contract: Contract, record: EventRecord) -> bytes:
        (value,) = record.values()
        try:
            if contract.text == "text" and isinstance(value, str):
                return value.encode()
            return _LONG.pack(value)
        except (UnicodeEncodeError, struct.error) as exc:
            raise EncodeError(
                "RECORD_MISFIT",
                saw=f"The value is {value!r:.80}.",
                why=f"It is no {contract.text}.",
                fix="Correct the value.",
            ) from exc

    def decode(
        self, payload: bytes | None, writers: Mapping[int, Contract]
    ) -> EventRecord:
        (writer,) = writers.values()
        (field,) = writer.fields
        return {field.name: _read(payload, writer.text)}

    def read_begun(
        self, payload: bytes, writer: Contract, *, until: str | None = None
    ) -> BegunEvent:
        del until
        try:
            value = _read(payload, writer.text)
        except DecodeError:
            return BegunEvent(fields=(), failed_at=0)
        field = BegunField(from_byte=0, until_byte=len(payload), value=value)
        return BegunEvent(fields=(field,), failed_at=None)

    def decoder(
        self, contracts: EventContracts, wanted: Collection[str]
    ) -> EventDecoder:
        # Services know formats, but their image has no Arrow.
        from tallyweir.schemas.formats.plain_decoder import PlainDecoder  # noqa: PLC0415

        return PlainDecoder(contracts, tuple(wanted))

    def spark_expression(
        self, contract: Contract, writers: Mapping[int, Contract], column: str
    ) -> str:
        del writers
        (field,) = contract.fields
        value = f"CAST({column} AS STRING)"
        if contract.text == "bigint":
            # A negative base gives signed numbers.
            number = f"CAST(CONV(HEX({column}), 16, -10) AS BIGINT)"
            value = f"CASE WHEN OCTET_LENGTH({column}) = {_LONG.size} THEN {number} END"
        return f"NAMED_STRUCT('{field.name}', {value})"


def _read(payload: bytes | None, kind: str) -> str | int:
    """Read one value.

    Raises:
        DecodeError: The payload is none.
    """
    if payload is None:
        raise DecodeError(ReasonCode.EMPTY_PAYLOAD, "there is no value")
    if kind == "bigint":
        if len(payload) != _LONG.size:
            raise DecodeError(
                ReasonCode.MALFORMED,
                f"{len(payload)} bytes, where a bigint has {_LONG.size}",
            )
        (number,) = _LONG.unpack(payload)
        return int(number)
    try:
        text = payload.decode()
    except UnicodeDecodeError as exc:
        raise DecodeError(
            ReasonCode.MALFORMED, f"byte {exc.start} is not UTF-8"
        ) from exc
    if "\0" in text:
        raise DecodeError(ReasonCode.MALFORMED, "the text has a NUL character")
    return text
