"""Random types of messages, random messages of them, and other bytes of the same."""

from __future__ import annotations

from random import Random
from typing import Any

from google.protobuf import descriptor_pb2 as pb
from google.protobuf import (
    duration_pb2,
    field_mask_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from tallyweir.schemas.contract import Contract
from tallyweir.schemas.formats.protobuf.message_fields import is_map
from tallyweir.schemas.formats.protobuf.proto_file import message_of
from tallyweir.schemas.formats.protobuf.tests.proto_contracts import contract_of_set
from tallyweir.schemas.formats.protobuf.wire_walk import Entry, entries

_F = pb.FieldDescriptorProto
_SCALARS = [
    *(_F.TYPE_DOUBLE, _F.TYPE_FLOAT, _F.TYPE_INT64, _F.TYPE_UINT64, _F.TYPE_INT32),
    *(_F.TYPE_FIXED64, _F.TYPE_FIXED32, _F.TYPE_BOOL, _F.TYPE_STRING, _F.TYPE_BYTES),
    *(_F.TYPE_UINT32, _F.TYPE_SFIXED32, _F.TYPE_SFIXED64, _F.TYPE_SINT32),
    _F.TYPE_SINT64,
]
_KEYS = [_F.TYPE_INT32, _F.TYPE_UINT64, _F.TYPE_BOOL, _F.TYPE_STRING, _F.TYPE_SINT64]
_WELL_KNOWN = [
    *("Timestamp", "Duration", "Struct", "Value", "FieldMask", "StringValue"),
    *("Int64Value", "UInt64Value", "FloatValue", "BoolValue", "BytesValue"),
]
_IMPORTS = (timestamp_pb2, duration_pb2, struct_pb2, field_mask_pb2, wrappers_pb2)
_MESSAGES = ("M", "N")
_DEPTH_MAX = 3
_TEXTS = ["", "a", "ß", "\U0001f600", '"\\', "x" * 130, "\u2028", "1"]


def made_contract(source: Random) -> Contract:
    """Make the contract of a random message ``M``, in proto3 or proto2."""
    is_old = source.random() < 0.3
    file = pb.FileDescriptorProto(name="made.proto", package="made")
    file.syntax = "proto2" if is_old else "proto3"
    file.dependency.extend(one.DESCRIPTOR.name for one in _IMPORTS)
    kind = file.enum_type.add(name="E")
    for name, number in (("ZERO", 0), ("ONE", 1), ("LOW", -5)):
        kind.value.add(name=name, number=number)
    for name in _MESSAGES:
        message = file.message_type.add(name=name)
        for _ in range(source.randint(1, 8)):
            _add_field(source, message, is_old=is_old)
        _hide_oneofs(message)
    files = pb.FileDescriptorSet()
    for one in _IMPORTS:
        one.DESCRIPTOR.CopyToProto(files.file.add())
    files.file.append(file)
    return contract_of_set(files.SerializeToString())


def _add_field(source: Random, message: pb.DescriptorProto, *, is_old: bool) -> None:
    used = {one.number for one in message.field}
    number = source.choice([source.randint(1, 20), source.randint(1, 5000)])
    if number in used or 19000 <= number < 20000:
        return
    field = message.field.add(name=f"f_{number}", number=number)
    field.json_name = f"f{number}"
    field.label = _F.LABEL_OPTIONAL
    _set_type(source, field)
    way = source.random()
    if way < 0.15:
        field.label = _F.LABEL_REPEATED
        if field.type in _SCALARS and source.random() < 0.5:
            field.options.packed = field.type not in {_F.TYPE_STRING, _F.TYPE_BYTES}
    elif way < 0.25:
        _make_map(source, message, field)
    elif way < 0.35:
        if not message.oneof_decl:
            message.oneof_decl.add(name="choice")
        field.oneof_index = 0
    elif way < 0.5 and not is_old:
        field.proto3_optional = True
    elif way < 0.55 and is_old and not field.type_name.startswith(".made."):
        field.label = _F.LABEL_REQUIRED
    elif way < 0.7 and is_old and field.type == _F.TYPE_INT32:
        field.default_value = "7"


def _set_type(source: Random, field: pb.FieldDescriptorProto) -> None:
    way = source.random()
    if way < 0.6:
        field.type = source.choice(_SCALARS)
    elif way < 0.7:
        field.type, field.type_name = _F.TYPE_ENUM, ".made.E"
    else:
        field.type = _F.TYPE_MESSAGE
        known = f".google.protobuf.{source.choice(_WELL_KNOWN)}"
        own = f".made.{source.choice(_MESSAGES)}"
        field.type_name = known if way < 0.85 else own


def _make_map(
    source: Random, message: pb.DescriptorProto, field: pb.FieldDescriptorProto
) -> None:
    entry = message.nested_type.add(name=f"F{field.number}Entry")
    entry.options.map_entry = True
    key = entry.field.add(name="key", number=1, label=_F.LABEL_OPTIONAL)
    key.type = source.choice(_KEYS)
    value = entry.field.add()
    value.CopyFrom(field)
    value.name, value.number, value.json_name = "value", 2, "value"
    field.name = f"f{field.number}"
    field.type, field.label = _F.TYPE_MESSAGE, _F.LABEL_REPEATED
    field.type_name = f".made.{message.name}.{entry.name}"


def _hide_oneofs(message: pb.DescriptorProto) -> None:
    """Give each ``optional`` field the oneof that compilers make for it."""
    for field in message.field:
        if field.proto3_optional:
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")


def made_message(source: Random, contract: Contract) -> Any:  # noqa: ANN401 - made here
    """Make a random message of a contract, an instance of the library's class."""
    message = message_factory.GetMessageClass(message_of(contract.text))()
    fill(source, message, 0)
    return message


def fill(source: Random, message: Any, depth: int) -> None:  # noqa: ANN401 - as above
    """Set random fields of a message."""
    name = message.DESCRIPTOR.full_name
    if name == "google.protobuf.Timestamp":
        message.seconds = source.randint(-62_135_596_800, 253_402_300_799)
        message.nanos = source.randrange(1_000_000) * 1_000
        return
    if name == "google.protobuf.Duration":
        sign = source.choice([-1, 1])
        message.seconds = sign * source.randint(0, 315_575_999_999)
        message.nanos = sign * source.randrange(1_000_000) * 1_000
        return
    if name == "google.protobuf.FieldMask":
        message.paths.append("a_b.c")
        return
    for field in message.DESCRIPTOR.fields:
        is_needed = field.is_required or name == "google.protobuf.Value"
        if is_needed or source.random() < 0.7:
            _fill_field(source, message, field, depth)


def _fill_field(
    source: Random,
    message: Any,  # noqa: ANN401 - as above
    field: FieldDescriptor,
    depth: int,
) -> None:
    is_deep = depth >= _DEPTH_MAX and not field.is_required
    if field.message_type is not None and is_deep and not is_map(field):
        return
    place = getattr(message, field.name)
    if is_map(field):
        value = field.message_type.fields_by_name["value"]
        for _ in range(source.randrange(4)):
            key = made_scalar(source, field.message_type.fields_by_name["key"])
            if value.message_type is None:
                place[key] = made_scalar(source, value)
            elif not is_deep:
                fill(source, place[key], depth + 1)
    elif field.is_repeated:
        for _ in range(source.randrange(4)):
            if field.message_type is None:
                place.append(made_scalar(source, field))
            else:
                fill(source, place.add(), depth + 1)
    elif field.message_type is None:
        setattr(message, field.name, made_scalar(source, field))
    else:
        fill(source, place, depth + 1)
        place.SetInParent()


def made_scalar(source: Random, field: FieldDescriptor) -> Any:  # noqa: ANN401 - as above
    """Make a value of a field's type."""
    kind = field.cpp_type
    if kind == field.CPPTYPE_STRING:
        text = source.choice(_TEXTS)
        return text if field.type == field.TYPE_STRING else text.encode() + b"\xff\x00"
    if kind == field.CPPTYPE_ENUM:
        numbers = [0] if field.enum_type.full_name.startswith("google") else [0, 1]
        return source.choice(numbers + ([] if field.enum_type.is_closed else [77]))
    values = list(_VALUES[kind])
    if field.containing_type.full_name != "google.protobuf.Value":
        values += _ENDLESS.get(kind, [])
    return source.choice(values)


_VALUES: dict[int, list[Any]] = {
    FieldDescriptor.CPPTYPE_BOOL: [False, True],
    FieldDescriptor.CPPTYPE_DOUBLE: [0.0, -0.0, 1.5, 1e300, 0.1],
    FieldDescriptor.CPPTYPE_FLOAT: [0.0, -0.0, 0.5, 0.1, 3e38],
    FieldDescriptor.CPPTYPE_INT32: [0, 1, -1, -(1 << 31), (1 << 31) - 1],
    FieldDescriptor.CPPTYPE_INT64: [0, 5, -1, -(1 << 63), (1 << 63) - 1],
    FieldDescriptor.CPPTYPE_UINT32: [0, 1, 300, (1 << 32) - 1],
    FieldDescriptor.CPPTYPE_UINT64: [0, 1, (1 << 53) + 1, (1 << 64) - 1],
}
_INFINITY = float("inf")
_ENDLESS: dict[int, list[Any]] = {
    FieldDescriptor.CPPTYPE_DOUBLE: [_INFINITY, -_INFINITY, float("nan")],
    FieldDescriptor.CPPTYPE_FLOAT: [_INFINITY, -_INFINITY, float("nan")],
}


def rewritten(source: Random, message: Descriptor, payload: bytes) -> bytes:
    """Write a message with other bytes that mean the same.

    Fields come in another order, at any depth; numbers and lengths get more bytes than
    they need; fields get defaults that were left out.
    """
    return _rewrite(source, message, payload, 0, len(payload))


def _rewrite(
    source: Random, message: Descriptor, payload: bytes, start: int, end: int
) -> bytes:
    queues: dict[int, list[bytes]] = {}
    for entry in entries(payload, start, end):
        field = message.fields_by_number.get(entry.number)
        part = _rewrite_entry(source, field, payload, entry)
        own = field.containing_oneof.name if field and field.containing_oneof else None
        key = entry.number if own is None else hash(own)
        queues.setdefault(key, []).append(part)
    for field in message.fields:
        is_plain = not field.has_presence and not field.is_repeated
        if is_plain and field.number not in queues and source.random() < 0.3:
            queues[field.number] = [_default(field)]
    if not message.GetOptions().map_entry:
        for key, queue in list(queues.items()):
            one = message.fields_by_number.get(key)
            if one is not None and is_map(one):
                source.shuffle(queue)
    left = [key for key, queue in queues.items() for _ in queue]
    source.shuffle(left)
    return b"".join(queues[key].pop(0) for key in left)


def _default(field: FieldDescriptor) -> bytes:
    wire, value = {
        **dict.fromkeys((field.TYPE_DOUBLE, field.TYPE_FIXED64), (1, bytes(8))),
        field.TYPE_SFIXED64: (1, bytes(8)),
        **dict.fromkeys((field.TYPE_FLOAT, field.TYPE_FIXED32), (5, bytes(4))),
        field.TYPE_SFIXED32: (5, bytes(4)),
        **dict.fromkeys((field.TYPE_STRING, field.TYPE_BYTES), (2, b"\0")),
    }.get(field.type, (0, b"\0"))
    return varint(field.number << 3 | wire) + value


def _rewrite_entry(
    source: Random, field: FieldDescriptor | None, payload: bytes, entry: Entry
) -> bytes:
    tag = varint(entry.number << 3 | entry.wire)
    content = payload[entry.begin : entry.stop]
    if entry.wire == 0:
        value, shift = 0, 0
        for byte in content:
            value |= (byte & 0x7F) << shift
            shift += 7
        return tag + varint(value, wide=source.random() < 0.3)
    if entry.wire != 2 or field is None:
        return tag + content
    if field.message_type is not None:
        content = _rewrite(source, field.message_type, payload, entry.begin, entry.stop)
    return tag + varint(len(content), wide=source.random() < 0.2) + content


def varint(value: int, *, wide: bool = False) -> bytes:
    """Write a number; with more bytes than it needs, if it is to be wide."""
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    if wide and len(written) < 4:
        written[-1] |= 0x80
        written.append(0)
    return bytes(written)
