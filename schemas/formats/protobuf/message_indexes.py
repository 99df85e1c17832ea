"""Which message of a file a payload is, as Confluent's serialisers write it.

Behind the registry's id stands the path to the message: how many indexes follow, then
each message's place among those of its file or of its outer message. All are zigzag
varints. The first message of a file is written as a single zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from google.protobuf import descriptor_pb2

from tallyweir.schemas.errors import DecodeError, ReasonCode
from tallyweir.schemas.formats.protobuf.wire_walk import MessageFault, read_varint

Indexes = tuple[int, ...]
"""The place of each message in the one around it, the outermost first."""

#: Messages are not nested deeper than that by anyone.
_INDEXES_MAX = 32
_FIRST: Indexes = (0,)


def split_indexes(body: bytes) -> tuple[Indexes, bytes]:
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
    return tuple(indexes) or _FIRST, body[at:]


def join_indexes(indexes: Indexes) -> bytes:
    """Write indexes as ``split_indexes`` reads them."""
    if indexes == _FIRST:
        return b"\0"
    return b"".join(_written(one << 1) for one in (len(indexes), *indexes))


def list_messages(
    file: descriptor_pb2.FileDescriptorProto,
) -> Iterator[tuple[Indexes, str]]:
    """Yield the indexes and the full name of each message, those of maps included."""
    return _listed(file.message_type, (), f"{file.package}." if file.package else "")


def _listed(
    messages: Iterable[descriptor_pb2.DescriptorProto], outer: Indexes, prefix: str
) -> Iterator[tuple[Indexes, str]]:
    for index, one in enumerate(messages):
        indexes, name = (*outer, index), f"{prefix}{one.name}"
        yield indexes, name
        yield from _listed(one.nested_type, indexes, f"{name}.")


def _read_number(body: bytes, at: int) -> tuple[int, int]:
    value, at = read_varint(body, at, len(body))
    return value >> 1 ^ -(value & 1), at


def _written(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:  # noqa: PLR2004 - what a byte holds besides its mark
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*parts, value))
