"""Which message of a file a payload is, as Confluent's serialisers write it.

Behind the registry's id stands the path to the message: how many indexes follow, then
each message's place among those of its file or of its outer message. All are zigzag
varints. The first message of a file is written as a single zero.
"""

from __future__ import annotations

from google.protobuf import descriptor_pb2

from tallyweir.schemas.errors import DecodeError, ReasonCode
from tallyweir.schemas.formats.protobuf.wire_walk import MessageFault, read_varint

#: Messages are not nested deeper than that by anyone.
_INDEXES_MAX = 32


def split_indexes(body: bytes) -> tuple[tuple[int, ...], bytes]:
    """Split what follows a registry's id into the indexes and the message.

    Raises:
        DecodeError: It does not begin with indexes.
    """
    try:
        count, at = _read_number(body, 0)
        if not 0 <= count <= _INDEXES_MAX:
            raise DecodeError(ReasonCode.MALFORMED, f"{count} message indexes")
        indexes = []
        for _ in range(count):
            index, at = _read_number(body, at)
            indexes.append(index)
    except MessageFault as exc:
        raise DecodeError(ReasonCode.MALFORMED, f"message indexes: {exc.saw}") from exc
    return tuple(indexes) or (0,), body[at:]


def message_at(
    file: descriptor_pb2.FileDescriptorProto, indexes: tuple[int, ...]
) -> str:
    """Return the full name of the message that indexes lead to.

    Raises:
        DecodeError: The file has no such message.
    """
    names = [file.package] if file.package else []
    inner = file.message_type
    for index in indexes:
        if not 0 <= index < len(inner):
            raise DecodeError(
                ReasonCode.UNKNOWN_SCHEMA,
                f"{file.name} has no message at {list(indexes)}",
            )
        names.append(inner[index].name)
        inner = inner[index].nested_type
    return ".".join(names)


def _read_number(body: bytes, at: int) -> tuple[int, int]:
    value, at = read_varint(body, at, len(body))
    return value >> 1 ^ -(value & 1), at
