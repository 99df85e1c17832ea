"""The fields of a message as columns.

A field of a scalar type is a column of its own type, an enum is a text, and whatever
has parts is JSON. A column is null only where the message can tell that a value is not
there: ``optional`` fields, members of a ``oneof``, messages. A field without presence,
and one with a default of its own, has its default instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from tallyweir.schemas.errors import ContractError, UnsafeContractError, raise_faults
from tallyweir.schemas.schema_tree import (
    Nullable,
    Primitive,
    Record,
    RecordField,
    SchemaNode,
)

TIMESTAMP = "google.protobuf.Timestamp"
DURATION = "google.protobuf.Duration"
ANY = "google.protobuf.Any"
#: Messages around one value, which tell an absent value from a default.
WRAPPERS = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in (
        *("Bool", "Bytes", "Double", "Float", "Int32", "Int64"),
        *("String", "UInt32", "UInt64"),
    )
)
JSON_NODE = Primitive(kind="string", logical="json")
_FIELDS_MAX = 1_000
_NAME_CHARACTERS_MAX = 63
_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_INT = Primitive(kind="int")
_LONG = Primitive(kind="long")
_UNSIGNED = Primitive(kind="bytes", logical="decimal", precision=20, scale=0)
_SCALARS: dict[int, Primitive] = {
    FieldDescriptor.TYPE_BOOL: Primitive(kind="boolean"),
    FieldDescriptor.TYPE_BYTES: Primitive(kind="bytes"),
    FieldDescriptor.TYPE_DOUBLE: Primitive(kind="double"),
    FieldDescriptor.TYPE_ENUM: Primitive(kind="string"),
    FieldDescriptor.TYPE_FIXED32: _LONG,
    FieldDescriptor.TYPE_FIXED64: _UNSIGNED,
    FieldDescriptor.TYPE_FLOAT: Primitive(kind="float"),
    FieldDescriptor.TYPE_INT32: _INT,
    FieldDescriptor.TYPE_INT64: _LONG,
    FieldDescriptor.TYPE_SFIXED32: _INT,
    FieldDescriptor.TYPE_SFIXED64: _LONG,
    FieldDescriptor.TYPE_SINT32: _INT,
    FieldDescriptor.TYPE_SINT64: _LONG,
    FieldDescriptor.TYPE_STRING: Primitive(kind="string"),
    FieldDescriptor.TYPE_UINT32: _LONG,
    FieldDescriptor.TYPE_UINT64: _UNSIGNED,
}


def read_tree(message: Descriptor) -> Record:
    """Return the types of a message's columns, in the order of the file.

    Raises:
        UnsafeContractError: Columns cannot be made of it; the error has all reasons.
    """
    raise_faults(list(_find_faults(message)))
    return Record(
        name=message.name,
        fields=tuple(
            RecordField(
                name=one.name, node=node_of(one), has_default=not one.is_required
            )
            for one in message.fields
        ),
    )


def node_of(field: FieldDescriptor) -> SchemaNode:
    """Return the type of a field's column."""
    item = _item_of(field)
    return Nullable(item=item) if can_lack(field) else item


def can_lack(field: FieldDescriptor) -> bool:
    """Tell whether a message can say that the field has no value.

    proto2 reads an absent field with a default of its own as that default, unless it
    is in a ``oneof``, where it says that another member has the value.
    """
    if not field.has_presence or field.is_required:
        return False
    return not field.has_default_value or field.containing_oneof is not None


def is_map(field: FieldDescriptor) -> bool:
    """Tell whether a field is a map."""
    return field.message_type is not None and bool(
        field.message_type.GetOptions().map_entry
    )


def first_unset(message: Message) -> str:
    """Return the path of the first required field without a value; empty if all have.

    The library's ``FindInitializationErrors`` would tell, but it kills the process if a
    map of scalars with an entry stands before the field (protobuf 7.36.2), and it lists
    all such fields, which takes a hundred times the memory of the payload.

    Args:
        message: A message whose texts, and so the keys of its maps, are UTF-8.
    """
    for field in message.DESCRIPTOR.fields:
        if field.is_required and not message.HasField(field.name):
            return str(field.name)
    for field, value in message.ListFields():
        for place, inner in _messages_in(field, value):
            unset = first_unset(inner)
            if unset:
                return f"{field.name}{place}.{unset}"
    return ""


def _messages_in(
    field: FieldDescriptor,
    value: Any,  # noqa: ANN401 - its class is made at run time
) -> Iterator[tuple[str, Message]]:
    if field.message_type is None:
        return
    if not field.is_repeated:
        yield "", value
    elif not is_map(field):
        yield from ((f"[{place}]", one) for place, one in enumerate(value))
    elif field.message_type.fields_by_name["value"].message_type is not None:
        # A message has its entries in no order.
        yield from ((f"[{json.dumps(key)}]", value[key]) for key in sorted(value))


def _item_of(field: FieldDescriptor) -> Primitive:
    if field.is_repeated:
        return JSON_NODE
    if field.message_type is None:
        return _SCALARS[field.type]
    name = field.message_type.full_name
    if name == TIMESTAMP:
        return Primitive(kind="long", logical="timestamp-micros")
    if name == DURATION:
        return Primitive(kind="string", logical="interval")
    if name in WRAPPERS:
        return _SCALARS[field.message_type.fields_by_name["value"].type]
    return JSON_NODE


def _find_faults(message: Descriptor) -> Iterator[ContractError]:
    if not 1 <= len(message.fields) <= _FIELDS_MAX:
        yield _unsafe(
            f"{message.full_name} has {len(message.fields):,} fields.",
            f"An event has 1 to {_FIELDS_MAX:,} columns.",
            "Name another message of the file.",
        )
    known: dict[str, str] = {}
    for field in message.fields:
        if not _COLUMN.fullmatch(field.name) or len(field.name) > _NAME_CHARACTERS_MAX:
            yield _unsafe(
                f"{field.full_name} is a long name.",
                f"A column's name has up to {_NAME_CHARACTERS_MAX} letters, digits "
                "and _.",
                "Shorten it: payloads hold the field's number, not its name.",
            )
        other = known.setdefault(field.name.casefold(), field.name)
        if other != field.name:
            yield _unsafe(
                f"{message.full_name} has the fields {other} and {field.name}.",
                "A table has each column once, regardless of case.",
                "Rename one: payloads hold the field's number, not its name.",
            )
        if _reaches(field, ANY):
            yield _unsafe(
                f"{field.full_name} holds a {ANY}.",
                "What an Any holds is known only to who has its type.",
                "Read the topic by a copy of the message without this field: fields "
                "that it does not name are ignored.",
            )


def _reaches(field: FieldDescriptor, name: str) -> bool:
    """Tell whether a value of a field may hold a message of a name, at any depth."""
    left, seen = [field.message_type], set[str]()
    while left:
        message = left.pop()
        if message is None or message.full_name in seen:
            continue
        if message.full_name == name:
            return True
        seen.add(message.full_name)
        left += [one.message_type for one in message.fields]
    return False


def _unsafe(saw: str, why: str, fix: str) -> ContractError:
    return UnsafeContractError("CONTRACT_TYPE_UNSUPPORTED", saw=saw, why=why, fix=fix)
