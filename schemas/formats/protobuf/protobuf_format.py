"""Messages of Protocol Buffers, as a format.

A payload is one message, and nothing in it names its contract. ``Protobuf.decode`` and
the decoder of whole batches accept the same payloads.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from tallyweir.schemas.errors import DecodeError
from tallyweir.schemas.formats.format import (
    BegunEvent,
    Damage,
    EventRecord,
    Format,
    Schema,
)
from tallyweir.schemas.formats.protobuf.protobuf_damages import DAMAGES
from tallyweir.schemas.schema_tree import Record, describe

if TYPE_CHECKING:
    from tallyweir.schemas.contract import Contract
    from tallyweir.schemas.event_contracts import EventContracts
    from tallyweir.schemas.formats.decoded_columns import EventDecoder
    from tallyweir.schemas.formats.protobuf.protobuf_codec import ProtobufCodec

_FRAME_BYTES = 6


@dataclass(frozen=True, slots=True)
class Protobuf(Format):
    """Messages, by the source of their types."""

    suffix: ClassVar[str] = ".proto"
    names_writers: ClassVar[bool] = False
    has_parts: ClassVar[bool] = True
    media_type: ClassVar[str] = "application/x-protobuf"
    damages: ClassVar[Mapping[str, Damage]] = DAMAGES

    def read_schema(self, content: bytes, path: Path, part: str = "") -> Schema:
        # Commands that decode nothing know formats too, and must start fast.
        from tallyweir.schemas.formats.protobuf import message_fields, proto_file  # noqa: PLC0415

        text = proto_file.read_compiled(self._compiled(content, path), path, part)
        tree = message_fields.read_tree(proto_file.message_of(text))
        return Schema(text=text, tree=tree)

    def _compiled(self, content: bytes, path: Path) -> bytes:
        from tallyweir.schemas.formats.protobuf.proto_file import compile_source  # noqa: PLC0415

        del content
        return compile_source(path)

    def find_incompatibilities(self, reader: Record, writer: Record) -> list[str]:
        written = {one.name: one.node for one in writer.fields}
        return [
            f"field {one.name} is not {describe(one.node)} there"
            for one in reader.fields
            if written.get(one.name) != one.node
        ]

    def encode(self, contract: Contract, record: EventRecord) -> bytes:
        return _codec(contract).write(record)

    def decode(
        self, payload: bytes | None, writers: Mapping[int, Contract]
    ) -> EventRecord:
        (writer,) = writers.values()
        codec = _codec(writer)
        return codec.record(codec.read(payload))

    def diagnose(
        self, payload: bytes | None, writers: Mapping[int, Contract]
    ) -> DecodeError | None:
        error = Format.diagnose(self, payload, writers)
        if error is None or not payload or payload[0] or len(payload) < _FRAME_BYTES:
            return error
        return DecodeError(
            error.reason_code,
            f"{error.detail}; it may begin with a schema registry's id, "
            f"{int.from_bytes(payload[1:5])}",
        )

    def read_begun(
        self, payload: bytes, writer: Contract, *, until: str | None = None
    ) -> BegunEvent:
        return _codec(writer).begin(payload, until)

    def decoder(
        self, contracts: EventContracts, wanted: Collection[str]
    ) -> EventDecoder:
        # Services know formats, but their image has no Arrow.
        from tallyweir.schemas.formats.protobuf.protobuf_decoder import ProtobufDecoder  # noqa: PLC0415

        return ProtobufDecoder(contracts, wanted)


@dataclass(frozen=True, slots=True)
class CompiledProtobuf(Protobuf):
    """Messages, by a compiled descriptor set: no compiler is needed."""

    suffix: ClassVar[str] = ".pb"

    def _compiled(self, content: bytes, path: Path) -> bytes:
        del path
        return content


def _codec(contract: Contract) -> ProtobufCodec:
    from tallyweir.schemas.formats.protobuf.protobuf_codec import compile_codec  # noqa: PLC0415

    return compile_codec(contract.text)
