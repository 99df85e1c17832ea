"""Values with parts as JSON texts, in the canonical JSON form of Protocol Buffers.

Names are those of the JSON form (``lowerCamelCase``). Integers of 64 bits are texts,
and so are bytes (Base64) and the numbers that JSON lacks; an enum is its name, or a
number that it does not know. Fields without presence are always there; a field with
presence is there if it is set. Google's types have the forms of their own.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from operator import attrgetter, methodcaller
from typing import Any

import numpy as np
from google.protobuf.descriptor import (
    Descriptor,
    EnumDescriptor,
    FieldDescriptor,
)

from tallyweir.schemas.errors import ReasonCode
from tallyweir.schemas.formats.protobuf.message_fields import (
    DURATION,
    TIMESTAMP,
    WRAPPERS,
    is_map,
)
from tallyweir.schemas.formats.protobuf.wire_walk import MessageFault

Write = Callable[[Any], object]
"""Makes of a value one that the ``json`` module writes; raises ``MessageFault``."""

_NULL = "google.protobuf.NullValue"

write_text = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":")
).encode


def compile_write(field: FieldDescriptor) -> Write:
    """Build the function that writes what a message has in a field."""
    return _compile(field, dict(_WELL_KNOWN))


def enum_names(kind: EnumDescriptor) -> dict[int, str]:
    """Return the name of each number; of several names the first."""
    return {one.number: one.name for one in reversed(kind.values)}


def read_text(value: str | bytes) -> str:
    """Return a text as the library's parser has read it.

    Raises:
        MessageFault: It is not UTF-8, which the parser tolerates in proto2.
    """
    if isinstance(value, bytes):
        raise MessageFault(ReasonCode.MALFORMED, "the text is not UTF-8")
    return value


def plain_text(value: str | bytes) -> str:
    """Return a text for JSON.

    Raises:
        MessageFault: As ``read_text`` does, or it has a NUL, which ``jsonb`` does not
            hold.
    """
    value = read_text(value)
    if "\0" in value:
        raise MessageFault(ReasonCode.OUT_OF_RANGE, "a NUL character in a text")
    return value


def _compile(field: FieldDescriptor, known: dict[str, Write]) -> Write:
    if is_map(field):
        key, value = (
            _compile_item(field.message_type.fields_by_name[name], known)
            for name in ("key", "value")
        )
        # A map has no order of its own, and equal messages are to give equal texts.
        return lambda items: {
            _key(name): value(items[one])
            for name, one in sorted((key(one), one) for one in items)
        }
    item = _compile_item(field, known)
    if not field.is_repeated:
        return item
    return lambda items: [item(one) for one in items]


def _key(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _compile_item(field: FieldDescriptor, known: dict[str, Write]) -> Write:
    if field.message_type is not None:
        return _compile_message(field.message_type, known)
    if field.enum_type is not None:
        if field.enum_type.full_name == _NULL:
            return lambda _: None
        names = enum_names(field.enum_type)
        return lambda number: names.get(number, number)
    return _SCALARS.get(field.type, _as_it_is)


def _as_it_is(value: object) -> object:
    return value


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _short_float(value: float) -> float | str:
    # The fewest digits that only this float has.
    return _real(float(str(np.float32(value))))


def _real(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


_SCALARS: dict[int, Write] = {
    FieldDescriptor.TYPE_BYTES: _base64,
    FieldDescriptor.TYPE_DOUBLE: _real,
    FieldDescriptor.TYPE_FIXED64: str,
    FieldDescriptor.TYPE_FLOAT: _short_float,
    FieldDescriptor.TYPE_INT64: str,
    FieldDescriptor.TYPE_SFIXED64: str,
    FieldDescriptor.TYPE_SINT64: str,
    FieldDescriptor.TYPE_STRING: plain_text,
    FieldDescriptor.TYPE_UINT64: str,
}


def _compile_message(message: Descriptor, known: dict[str, Write]) -> Write:
    name = message.full_name
    if name in WRAPPERS:
        item = _compile_item(message.fields_by_name["value"], known)
        return lambda value: item(value.value)
    if name not in known:
        members: list[tuple[str, Callable[[Any], bool] | None, Write, Write]] = []
        # A message may hold itself, so it is known before its fields are.
        known[name] = lambda value: _object(value, members)
        for one in message.fields:
            is_set = methodcaller("HasField", one.name) if one.has_presence else None
            write = _compile(one, known)
            members.append((one.json_name, is_set, attrgetter(one.name), write))
    return known[name]


def _object(
    message: Any,  # noqa: ANN401 - of a class that is made at run time
    members: list[tuple[str, Callable[[Any], bool] | None, Write, Write]],
) -> dict[str, object]:
    written = {}
    for name, is_set, get, write in members:
        if is_set is None or is_set(message):
            try:
                written[name] = write(get(message))
            except MessageFault as exc:
                exc.path.append(name)
                raise
    return written


def _own_text(value: Any) -> str:  # noqa: ANN401 - as above
    try:
        return str(value.ToJsonString())
    except ValueError as exc:
        raise MessageFault(ReasonCode.OUT_OF_RANGE, str(exc)) from exc


def _struct(value: Any) -> dict[str, object]:  # noqa: ANN401 - as above
    return {plain_text(name): _value(one) for name, one in sorted(value.fields.items())}


def _value(value: Any) -> object:  # noqa: ANN401 - as above
    match value.WhichOneof("kind"):
        case "number_value":
            if not math.isfinite(value.number_value):
                raise MessageFault(
                    ReasonCode.OUT_OF_RANGE, f"a Value holds {value.number_value}"
                )
            return value.number_value
        case "string_value":
            return plain_text(value.string_value)
        case "bool_value":
            return value.bool_value
        case "struct_value":
            return _struct(value.struct_value)
        case "list_value":
            return [_value(one) for one in value.list_value.values]
    return None


#: The types that have JSON forms of their own.
_WELL_KNOWN: dict[str, Write] = {
    DURATION: _own_text,
    TIMESTAMP: _own_text,
    "google.protobuf.FieldMask": _own_text,
    "google.protobuf.ListValue": lambda value: [_value(one) for one in value.values],
    "google.protobuf.Struct": _struct,
    "google.protobuf.Value": _value,
}
