"""JSON documents, as a format.

A payload is one JSON object in UTF-8, and nothing in it names its contract. Its fields
are named by a pipeline, or declared by a JSON Schema (``json_schema``). A payload
that ``json_text`` does not accept, or a value that its field does not hold exactly, is
no event. ``Json.decode`` and the decoder of whole batches accept the same payloads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from tallyweir.schemas.formats.format import (
    BegunEvent,
    Damage,
    EventRecord,
    Format,
    Schema,
)
from tallyweir.schemas.formats.json.json_codec import compile_codec
from tallyweir.schemas.formats.json.json_damages import DAMAGES
from tallyweir.schemas.formats.json.json_fields import read_fields
from tallyweir.schemas.formats.json.json_schema import read_json_schema
from tallyweir.schemas.schema_tree import Record, describe
from tallyweir.sinks.protocol.registered_schema import RegisteredSchema

if TYPE_CHECKING:
    from tallyweir.schemas.contract import Contract
    from tallyweir.schemas.event_contracts import EventContracts
    from tallyweir.schemas.formats.decoded_columns import EventDecoder


@dataclass(frozen=True, slots=True)
class Json(Format):
    """JSON documents.

    Attributes:
        unknown: What becomes of fields that are not columns, as in ``read_fields``, if
            a JSON Schema declares the columns.
    """

    unknown: str = "ignore"

    suffix: ClassVar[str] = ".schema.json"
    described: ClassVar[str] = "JSON documents"
    names_writers: ClassVar[bool] = False
    media_type: ClassVar[str] = "application/json"
    damages: ClassVar[Mapping[str, Damage]] = DAMAGES

    def read_schema(self, content: bytes, path: Path, part: str = "") -> Schema:
        del part
        return self._schema(content, path.name.removesuffix(self.suffix))

    def read_registered(self, schema: RegisteredSchema, part: str = "") -> Schema:
        del part
        name = f"schema_{schema.schema_id}"
        return self._schema(schema.text.encode(), name, schema.references)

    def _schema(
        self, content: bytes, name: str, references: Iterable[tuple[str, str]] = ()
    ) -> Schema:
        fields = read_json_schema(content, references)
        return read_fields(fields, unknown=self.unknown, name=name)

    def find_incompatibilities(self, reader: Record, writer: Record) -> list[str]:
        written = {one.name: one.node for one in writer.fields}
        return [
            f"field {one.name} is not {describe(one.node)} there"
            for one in reader.fields
            if written.get(one.name) != one.node
        ]

    def encode(self, contract: Contract, record: EventRecord) -> bytes:
        return compile_codec(contract.text).write(record)

    def encode_document(self, contract: Contract, document: str) -> bytes:
        del contract
        return document.encode()

    def decode(
        self, payload: bytes | None, writers: Mapping[int, Contract]
    ) -> EventRecord:
        (writer,) = writers.values()
        return compile_codec(writer.text).read(payload).record

    def read_begun(
        self, payload: bytes, writer: Contract, *, until: str | None = None
    ) -> BegunEvent:
        return compile_codec(writer.text).begin(payload, until)

    def decoder(
        self, contracts: EventContracts, wanted: Collection[str]
    ) -> EventDecoder:
        # Services know formats, but their image has no Arrow.
        from tallyweir.schemas.formats.json.json_decoder import JsonDecoder  # noqa: PLC0415

        return JsonDecoder(contracts, wanted)
