"""Indexes lead to the messages that Confluent's serialiser has written."""

from __future__ import annotations

import pytest
from google.protobuf import descriptor_pb2

from tallyweir.schemas.errors import DecodeError
from tallyweir.schemas.formats.protobuf.message_indexes import (
    join_indexes,
    list_messages,
    split_indexes,
)

_TREE: dict[str, dict[str, object]] = {
    "First": {"Inner": {"Deep": {}}, "Other": {}},
    "Second": {"Inner": {}},
}


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="nested.proto", package="shop")
    for name, members in _TREE.items():
        _add(file.message_type.add(name=name), members)
    return file


def _add(message: descriptor_pb2.DescriptorProto, members: dict[str, object]) -> None:
    for name, inner in members.items():
        assert isinstance(inner, dict)
        _add(message.nested_type.add(name=name), inner)


# As confluent-kafka 2.16.1 writes them, with "use.deprecated.format" off.
@pytest.mark.parametrize(
    ("written", "name", "message"),
    [
        (b"\x00\x00\x00\x00\x01\x00\x08\x01", "shop.First", b"\x08\x01"),
        (b"\x00\x00\x00\x00\x02\x04\x00\x00\x08\x02", "shop.First.Inner", b"\x08\x02"),
        (
            b"\x00\x00\x00\x00\x03\x06\x00\x00\x00\x08\x03",
            "shop.First.Inner.Deep",
            b"\x08\x03",
        ),
        (b"\x00\x00\x00\x00\x04\x04\x00\x02\x08\x04", "shop.First.Other", b"\x08\x04"),
        (b"\x00\x00\x00\x00\x05\x02\x02\n\x01x", "shop.Second", b"\n\x01x"),
        (b"\x00\x00\x00\x00\x02\x04\x02\x00\n\x01y", "shop.Second.Inner", b"\n\x01y"),
    ],
)
def test_what_the_serialiser_wrote_is_found(
    written: bytes, name: str, message: bytes
) -> None:
    """The first five bytes are the registry's."""
    indexes, rest = split_indexes(written[5:])
    assert dict(list_messages(_file()))[indexes] == name
    assert rest == message
    assert join_indexes(indexes) + rest == written[5:]


@pytest.mark.parametrize(
    "body",
    [b"", b"\x02", b"\x01", b"\x7f", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"],
)
def test_other_bytes_are_no_indexes(body: bytes) -> None:
    """Too few, fewer than none, or more than anybody has."""
    with pytest.raises(DecodeError, match="MALFORMED"):
        split_indexes(body)


@pytest.mark.parametrize("indexes", [(0,), (300,), (0, 0), (1, 64, 8191, 8192)])
def test_indexes_are_read_as_they_are_written(indexes: tuple[int, ...]) -> None:
    """Those of the first message may be written out as well."""
    assert (indexes, b"x") == split_indexes(join_indexes(indexes) + b"x")
    assert ((0,), b"x") == split_indexes(b"\x02\x00x")
