"""Tell whether a reader of one schema can read data written with another.

These are Avro's resolution rules: fields match by name or by the reader's alias, a
field that only the reader has needs a default, numbers may widen, a union may gain
null, and an enum may lose symbols if it has a default.

The rules are stricter than Avro's where Avro would return a wrong value without an
error: a changed logical type (milliseconds read as microseconds), and bytes read as a
string (bytes need not be text). Types of a union of several types match by name only.
"""

from __future__ import annotations

from tallyweir.schemas.schema_tree import (
    Enumeration,
    Fixed,
    Mapping,
    Primitive,
    Record,
    RecordField,
    SchemaNode,
    Sequence,
    Union,
    describe,
    item_of,
    may_be_null,
)

_PROMOTIONS = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
}


def find_incompatibilities(reader: Record, writer: Record) -> list[str]:
    """List why a reader could not read a writer's data; empty means it can.

    Each entry is a readable clause that names the field.
    """
    return _differences(reader, writer, at="")


def _differences(reader: SchemaNode, writer: SchemaNode, *, at: str) -> list[str]:
    if may_be_null(writer) and not may_be_null(reader):
        return [f"{at} may be null when written, but not when read"]
    return _item_differences(item_of(reader), item_of(writer), at=at)


def _item_differences(reader: SchemaNode, writer: SchemaNode, *, at: str) -> list[str]:
    match reader, writer:
        case Record(), Record():
            found = _record_differences(reader, writer, at=at)
        case Union(), Union():
            found = _union_differences(reader, writer, at=at)
        case Sequence(), Sequence():
            found = _differences(reader.item, writer.item, at=f"{at}[]")
        case Mapping(), Mapping():
            found = _differences(reader.item, writer.item, at=f"{at}{{}}")
        case Enumeration(), Enumeration():
            found = _enumeration_differences(reader, writer, at=at)
        case Fixed(), Fixed():
            found = _fixed_differences(reader, writer, at=at)
        case Primitive(), Primitive() if _is_promotion(reader, writer):
            found = []
        case _:
            found = [_changed(reader, writer, at)]
    return found


def _union_differences(reader: Union, writer: Union, *, at: str) -> list[str]:
    read = dict(zip(reader.names, reader.branches, strict=True))
    found: list[str] = []
    for name, branch in zip(writer.names, writer.branches, strict=True):
        known = read.get(name)
        if branch is None:
            continue
        if known is None:
            found.append(f"{at} may be written as {name}, which the reader lacks")
        else:
            found += _differences(known, branch, at=f"{at}.{name}")
    return found


def _changed(reader: SchemaNode, writer: SchemaNode, at: str) -> str:
    return f"{at} is written as {describe(writer)} and read as {describe(reader)}"


def _is_promotion(reader: Primitive, writer: Primitive) -> bool:
    # A UUID is text with or without its logical type; all others change the value.
    if reader.logical == "uuid" or writer.logical == "uuid":
        return reader.kind == writer.kind
    if (reader.logical, reader.precision, reader.scale) != (
        writer.logical,
        writer.precision,
        writer.scale,
    ):
        return False
    return reader.kind == writer.kind or reader.kind in _PROMOTIONS.get(
        writer.kind, set()
    )


def _record_differences(reader: Record, writer: Record, *, at: str) -> list[str]:
    found = _name_differences(reader, writer, at=at)
    written = {field.name: field for field in writer.fields}
    for field in reader.fields:
        place = f"{at}.{field.name}" if at else field.name
        source = find_source(field, written)
        if source is not None:
            found += _differences(field.node, source.node, at=place)
        elif not field.has_default:
            found.append(f"{place} is not written and has no default")
    return found


def find_source(
    field: RecordField, written: dict[str, RecordField]
) -> RecordField | None:
    """Find the writer's field, by name, from which a reader's field is read.

    None if the reader takes the field's default.
    """
    for name in (field.name, *field.aliases):
        if name in written:
            return written[name]
    return None


def _name_differences(
    reader: Record | Enumeration | Fixed,
    writer: Record | Enumeration | Fixed,
    *,
    at: str,
) -> list[str]:
    known = {name.rpartition(".")[2] for name in (reader.name, *reader.aliases)}
    if writer.name.rpartition(".")[2] in known:
        return []
    place = at or "the event"
    return [f"{place} is written as {writer.name} and read as {reader.name}"]


def _enumeration_differences(
    reader: Enumeration, writer: Enumeration, *, at: str
) -> list[str]:
    found = _name_differences(reader, writer, at=at)
    unknown = [symbol for symbol in writer.symbols if symbol not in reader.symbols]
    if unknown and reader.default is None:
        found.append(
            f"{at} may be written as {', '.join(unknown)}, which the reader lacks "
            "and has no default for"
        )
    return found


def _fixed_differences(reader: Fixed, writer: Fixed, *, at: str) -> list[str]:
    if (reader.size, reader.logical, reader.precision, reader.scale) != (
        writer.size,
        writer.logical,
        writer.precision,
        writer.scale,
    ):
        return [_changed(reader, writer, at)]
    return _name_differences(reader, writer, at=at)
