"""Messages behind a schema registry's ids, as a format.

A payload is Confluent's header, the indexes that say which message of the schema it is,
and the message. Whoever wrote it, it is read by the pinned message: a writer is known
only if ``message_compatibility`` finds that this reads each value as it was meant.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tallyweir.schemas.errors import DecodeError, ReasonCode
from tallyweir.schemas.formats.format import (
    BegunEvent,
    EventRecord,
    Format,
    Schema,
    require_readable,
)
from tallyweir.schemas.formats.framing import Framing, frame, split
from tallyweir.schemas.formats.protobuf.protobuf_format import Protobuf
from tallyweir.sinks.protocol.registered_schema import RegisteredSchema

if TYPE_CHECKING:
    from tallyweir.schemas.contract import Contract
    from tallyweir.schemas.event_contracts import EventContracts
    from tallyweir.schemas.formats.decoded_columns import EventDecoder


@dataclass(frozen=True, slots=True)
class FramedProtobuf(Protobuf):
    """Messages, each behind a magic byte, an id and indexes."""

    suffix: ClassVar[str] = ".framed-proto"
    names_writers: ClassVar[bool] = True
    registry_kind: ClassVar[str] = "PROTOBUF"

    def read_registered(self, schema: RegisteredSchema, part: str = "") -> Schema:
        # Commands that decode nothing know formats too, and must start fast.
        from tallyweir.schemas.formats.protobuf import (  # noqa: PLC0415
            message_fields,
            proto_file,
            registered_proto,
        )

        text = registered_proto.read_message(schema, part)
        tree = message_fields.read_tree(proto_file.message_of(text))
        return Schema(text=text, tree=tree)

    def read_writer(self, schema: RegisteredSchema, reader: Contract) -> Schema:
        from tallyweir.schemas.formats.protobuf import (  # noqa: PLC0415 - as above
            message_compatibility,
            proto_file,
            registered_proto,
        )

        read = proto_file.message_of(reader.text)
        text = registered_proto.read_message(schema, read.full_name)
        written = proto_file.message_of(text)
        require_readable(reader, message_compatibility.find_differences(read, written))
        text = registered_proto.with_messages_of(reader.text, text)
        return Schema(text=text, tree=reader.tree)

    def encode(self, contract: Contract, record: EventRecord) -> bytes:
        from tallyweir.schemas.formats.protobuf import (  # noqa: PLC0415 - as above
            message_indexes,
            proto_file,
            registered_proto,
        )

        name = proto_file.message_of(contract.text).full_name
        messages = registered_proto.messages_of(contract.text)
        indexes = next(one for one, known in messages.items() if known == name)
        body = Protobuf.encode(self, contract, record)
        return frame(contract.schema_id, message_indexes.join_indexes(indexes) + body)

    def decode(
        self, payload: bytes | None, writers: Mapping[int, Contract]
    ) -> EventRecord:
        writer, message = open_message(payload, writers)
        return Protobuf.decode(self, message, {writer.schema_id: writer})

    def diagnose(
        self, payload: bytes | None, writers: Mapping[int, Contract]
    ) -> DecodeError | None:
        return Format.diagnose(self, payload, writers)

    def decode_body(self, body: bytes, contract: Contract) -> EventRecord:
        return Protobuf.decode(self, body, {contract.schema_id: contract})

    def schema_id(self, payload: bytes | None) -> int | None:
        try:
            return split(payload)[0]
        except DecodeError:
            return None

    def writer_of(
        self, payload: bytes | None, writers: Mapping[int, Contract]
    ) -> Contract | None:
        try:
            return open_message(payload, writers)[0]
        except DecodeError:
            return None

    def read_begun(
        self, payload: bytes, writer: Contract, *, until: str | None = None
    ) -> BegunEvent:
        _, message = open_message(payload, {writer.schema_id: writer})
        begun = Protobuf.read_begun(self, message, writer, until=until)
        return begun.behind(len(payload) - len(message))

    def decoder(
        self, contracts: EventContracts, wanted: Collection[str]
    ) -> EventDecoder:
        # Services know formats, but their image has no Arrow.
        from tallyweir.schemas.formats.protobuf.protobuf_decoder import (  # noqa: PLC0415
            FramedProtobufDecoder,
        )

        return FramedProtobufDecoder(contracts, wanted)


def open_message(
    payload: bytes | None, writers: Mapping[int, Contract]
) -> tuple[Contract, bytes]:
    """Find the writer of a payload, and the message in it.

    Raises:
        DecodeError: As ``Framing.writer_of`` does; ``MALFORMED`` for indexes that lead
            to no message of the writer's schema, ``WRONG_TYPE`` for those that lead to
            another message than the one that is read.
    """
    # Commands that decode nothing know formats too, and must start fast.
    from tallyweir.schemas.formats.protobuf.message_indexes import split_indexes  # noqa: PLC0415
    from tallyweir.schemas.formats.protobuf.proto_file import message_of  # noqa: PLC0415
    from tallyweir.schemas.formats.protobuf.registered_proto import messages_of  # noqa: PLC0415

    writer = Framing.CONFLUENT.writer_of(payload, writers)
    _, body = split(payload)
    indexes, message = split_indexes(body)
    found = messages_of(writer.text).get(indexes)
    wanted = message_of(writer.text).full_name
    if found is None:
        raise DecodeError(
            ReasonCode.MALFORMED,
            f"schema id {writer.schema_id} has no message at {list(indexes)}",
        )
    if found != wanted:
        raise DecodeError(
            ReasonCode.WRONG_TYPE, f"the message is {found}, and {wanted} is read"
        )
    return writer, message
