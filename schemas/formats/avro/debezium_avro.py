"""Changes of Debezium in Avro, as a format.

A contract is the schema of an envelope, and its fields are the columns of a change: see
``debezium_schema``. Other writers of a connector's topics are known for what they are,
so their records are skipped, as ``debezium_envelope`` skips those of JSON.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tallyweir.schemas.errors import DecodeError, EncodeError, ReasonCode
from tallyweir.schemas.formats.avro.avro_format import (
    Avro,
    compile_codec,
    read_schema,
)
from tallyweir.schemas.formats.avro.compatibility import find_incompatibilities
from tallyweir.schemas.formats.avro.debezium_schema import (
    ChangeColumn,
    change_form,
    flat_tree,
    with_logical_types,
)
from tallyweir.schemas.formats.avro.strict_walk import MalformedError
from tallyweir.schemas.formats.debezium_envelope import (
    COMPARED,
    SkippedRecordError,
    row_of,
)
from tallyweir.schemas.formats.format import (
    BegunEvent,
    BegunField,
    EventRecord,
    Schema,
)
from tallyweir.schemas.formats.json.json_text import Fault
from tallyweir.schemas.schema_tree import Record

if TYPE_CHECKING:
    from tallyweir.schemas.contract import Contract
    from tallyweir.schemas.event_contracts import EventContracts
    from tallyweir.schemas.formats.decoded_columns import EventDecoder


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What one payload holds.

    Attributes:
        writer: The contract that wrote it.
        members: Its members, as fastavro reads them, and its row.
        compared: The bytes that its repeats share, with what names the writer.
    """

    writer: Contract
    members: Mapping[str, Any]
    compared: bytes

    def value(self, column: ChangeColumn) -> object:
        """Return the value of a column of the writer.

        Raises:
            DecodeError: It has none that its type holds.
        """
        value: Any = self.members
        for name in column.path:
            value = None if value is None else value.get(name)
        if value is None or column.read is None:
            return value
        try:
            return column.read(value)
        except Fault as exc:
            exc.path += reversed(column.path)
            raise exc.as_error() from None


@dataclass(frozen=True, slots=True)
class DebeziumAvro(Avro):
    """Envelopes of Debezium as Avro bodies; see ``Avro``."""

    def read_schema(self, content: bytes, path: Path, part: str = "") -> Schema:
        del part
        try:
            schema = with_logical_types(json.loads(content))
        except (ValueError, RecursionError):
            return read_schema(content, path)
        read = read_schema(json.dumps(schema).encode(), path)
        return Schema(
            text=read.text, tree=flat_tree(read.text), schema_id=read.schema_id
        )

    def find_incompatibilities(self, reader: Record, writer: Record) -> list[str]:
        # Records that are no changes have no columns, and are skipped.
        return find_incompatibilities(reader, writer) if writer.fields else []

    def encode(self, contract: Contract, record: EventRecord) -> bytes:
        del record
        raise EncodeError(
            "RECORD_MISFIT",
            saw=f"A record of {contract.reference} is a change of Debezium.",
            why="Only a connector knows what else its envelope holds in Avro.",
            fix="Let Debezium send it, or read the changes as JSON.",
        )

    def read_change(
        self, payload: bytes | None, writers: Mapping[int, Contract]
    ) -> Change:
        """Read one payload.

        Raises:
            SkippedRecordError: The record is no change.
            DecodeError: It is nothing that Debezium writes.
        """
        if payload is None:
            raise SkippedRecordError("tombstone")
        writer = self.framing.writer_of(payload, writers)
        form, codec = change_form(writer.text), compile_codec(writer)
        at = self.framing.header_bytes
        compared = [payload[:at]]
        try:
            for name, walk in zip(form.members, codec.walk_fields, strict=True):
                start, at = at, walk(payload, at)
                if name in COMPARED:
                    compared.append(payload[start:at])
        except MalformedError as exc:
            raise DecodeError(ReasonCode.MALFORMED, str(exc)) from exc
        if at != len(payload):
            raise DecodeError(
                ReasonCode.TRAILING_BYTES,
                f"the change ended at byte {at} of {len(payload)}",
            )
        if form.other is not None:
            raise SkippedRecordError(form.other)
        members: dict[str, Any] = codec.read(payload[self.framing.header_bytes :])
        try:
            row = row_of(members)
        except Fault as exc:
            raise exc.as_error() from None
        return Change(writer=writer, members=members | row, compared=b"".join(compared))

    def decode(
        self, payload: bytes | None, writers: Mapping[int, Contract]
    ) -> EventRecord:
        change = self.read_change(payload, writers)
        columns = change_form(change.writer.text).columns
        return {one.name: change.value(one) for one in columns}

    def read_begun(
        self, payload: bytes, writer: Contract, *, until: str | None = None
    ) -> BegunEvent:
        """Read what an envelope holds; where that lies in the payload is not told."""
        begun: list[BegunField] = []
        if not writer.fields:
            return BegunEvent(fields=(), failed_at=None)
        try:
            change = self.read_change(payload, {writer.schema_id: writer})
            for one in change_form(writer.text).columns:
                value = change.value(one)
                begun.append(
                    BegunField(from_byte=0, until_byte=len(payload), value=value)
                )
                if one.name == until:
                    break
        except DecodeError:
            return BegunEvent(fields=tuple(begun), failed_at=0)
        return BegunEvent(fields=tuple(begun), failed_at=None)

    def decoder(
        self, contracts: EventContracts, wanted: Collection[str]
    ) -> EventDecoder:
        # Services know formats, but their image has no Arrow.
        from tallyweir.schemas.formats.avro.debezium_decoder import ChangeDecoder  # noqa: PLC0415

        return ChangeDecoder(contracts, wanted)

    def spark_expression(
        self, contract: Contract, writers: Mapping[int, Contract], column: str
    ) -> None:
        del contract, writers, column
