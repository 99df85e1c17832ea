"""Tell whether a writer's payloads can be read by the pinned message, without a guess.

Fields match by number. What the reader makes of each value must be what the writer
meant: a type may only widen, an absent field must mean the same to both, a number of an
enum must have the same name, and members of a ``oneof`` must exclude each other for the
writer as well. Names of fields and messages may change, because payloads have none.
"""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from tallyweir.schemas.formats.protobuf.json_form import enum_names
from tallyweir.schemas.formats.protobuf.message_fields import can_lack, is_map

_F = FieldDescriptor
#: What a value may be read as, if it was written as another type.
_WIDER = frozenset(
    {
        (_F.TYPE_INT32, _F.TYPE_INT64),
        (_F.TYPE_SINT32, _F.TYPE_SINT64),
        (_F.TYPE_UINT32, _F.TYPE_INT64),
        (_F.TYPE_UINT32, _F.TYPE_UINT64),
    }
)
_TYPE_NAMES = {
    number: name.removeprefix("TYPE_").lower()
    for name, number in vars(_F).items()
    if name.startswith("TYPE_")
}
#: Messages that columns and JSON give a meaning of its own.
_OF_GOOGLE = "google.protobuf."

_Seen = set[tuple[str, str]]


def find_differences(reader: Descriptor, writer: Descriptor) -> list[str]:
    """List why a reader cannot read a writer's messages; empty means it can."""
    return list(_differences(reader, writer, "", set()))


def _differences(
    reader: Descriptor, writer: Descriptor, at: str, seen: _Seen
) -> Iterator[str]:
    if (reader.full_name, writer.full_name) in seen:
        return
    seen.add((reader.full_name, writer.full_name))
    written = {one.number: one for one in writer.fields}
    for field in reader.fields:
        place = f"{at}{field.name}"
        source = written.get(field.number)
        if source is not None:
            yield from _field_differences(field, source, place, seen)
        elif field.is_required:
            yield f"{place} is required and not written"
    for choice in reader.oneofs:
        members = [one for one in choice.fields if one.number in written]
        choices = {_choice(written[one.number]) for one in members}
        if len(members) > 1 and (len(choices) > 1 or None in choices):
            names = ", ".join(f"{at}{one.name}" for one in members)
            yield f"{names} do not exclude each other when written"


def _choice(field: FieldDescriptor) -> str | None:
    return None if field.containing_oneof is None else field.containing_oneof.name


def _field_differences(
    field: FieldDescriptor, source: FieldDescriptor, place: str, seen: _Seen
) -> Iterator[str]:
    shapes = [
        "a map" if is_map(one) else "repeated" if one.is_repeated else "single"
        for one in (field, source)
    ]
    if shapes[0] != shapes[1]:
        yield f"{place} is written as {shapes[1]} and read as {shapes[0]}"
        return
    if not source.is_required and _absence(field) != _absence(source):
        yield f"{place} means another thing when it is absent"
    if field.type != source.type:
        if (source.type, field.type) not in _WIDER:
            yield (
                f"{place} is written as {_TYPE_NAMES[source.type]} and read as "
                f"{_TYPE_NAMES[field.type]}"
            )
    elif field.enum_type is not None:
        yield from _enum_differences(field.enum_type, source.enum_type, place)
    elif field.message_type is not None:
        yield from _message_differences(
            field.message_type, source.message_type, place, seen
        )


def _absence(field: FieldDescriptor) -> tuple[object, ...]:
    """Return what a message without the field says."""
    if field.is_repeated:
        return ()
    default = None if field.message_type else repr(field.default_value)
    return field.is_required, field.has_presence, can_lack(field), default


def _enum_differences(
    reader: EnumDescriptor, writer: EnumDescriptor, place: str
) -> Iterator[str]:
    names = enum_names(reader)
    written: dict[int, list[str]] = {}
    for one in writer.values:
        written.setdefault(one.number, []).append(one.name)
    for number, known in written.items():
        if names.get(number, known[0]) not in known:
            yield f"{place} is written as {known[0]} and read as {names[number]}"


def _message_differences(
    reader: Descriptor, writer: Descriptor, place: str, seen: _Seen
) -> Iterator[str]:
    names = reader.full_name, writer.full_name
    if not any(one.startswith(_OF_GOOGLE) for one in names):
        yield from _differences(reader, writer, f"{place}.", seen)
    elif names[0] != names[1]:
        yield f"{place} is written as {names[1]} and read as {names[0]}"
