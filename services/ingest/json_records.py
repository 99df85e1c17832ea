"""Read JSON values as values of a contract; types that JSON lacks travel as text.

Dates and instants are ISO 8601 (an instant with its offset), decimals are texts, and
bytes are base64. Whole numbers for instants and dates count in the contract's unit. All
other values pass through unchanged; the codec decides whether they fit.
"""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Callable
from decimal import Decimal, InvalidOperation

from schemas.codec import EventRecord
from schemas.contract import Contract
from schemas.schema_tree import (
    Enumeration,
    Fixed,
    Mapping,
    Nullable,
    Primitive,
    Record,
    SchemaNode,
    Sequence,
)
from services.process.refusals import RefusedError

Convert = Callable[[object], object]


def compile_reader(contract: Contract) -> Callable[[object], EventRecord]:
    """Build the function that makes a record of a parsed JSON object.

    It raises ``RefusedError`` (``RECORD_MISFIT``) for a value that is not an object, or
    for a text that does not read as its field's type.
    """
    members = _members(contract.tree, "")

    def read(value: object) -> EventRecord:
        if not isinstance(value, dict):
            raise misfit(
                contract.reference, f"an event is an object, not {_kind(value)}"
            )
        try:
            return _convert_members(value, members)
        except _UnreadableTextError as exc:
            raise misfit(contract.reference, str(exc)) from exc

    return read


def misfit(reference: str, saw: str) -> RefusedError:
    """Say that an event does not fit its contract."""
    return RefusedError(
        "RECORD_MISFIT",
        status=422,
        saw=f"The event is no {reference}: {saw}.",
        why="A pipeline could not read it as it was meant.",
        fix="Correct the event.",
    )


class _UnreadableTextError(Exception):
    """A text does not read as its field's type."""


def _kind(value: object) -> str:
    names = {list: "an array", str: "a text", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def _members(node: Record, at: str) -> dict[str, Convert]:
    """The fields whose values need conversion, without those of JSON's own types."""
    prefix = f"{at}." if at else ""
    converts = {
        field.name: _compile(field.node, f"{prefix}{field.name}")
        for field in node.fields
    }
    return {name: convert for name, convert in converts.items() if convert}


def _convert_members(
    value: dict[str, object], members: dict[str, Convert]
) -> EventRecord:
    record = dict(value)
    for name, convert in members.items():
        if name in record:
            record[name] = convert(record[name])
    return record


def _compile(node: SchemaNode, at: str) -> Convert | None:
    match node:
        case Nullable():
            return _compile(node.item, at)
        case Sequence():
            item = _compile(node.item, f"{at}[]")
            return item and _each_item(item)
        case Mapping():
            item = _compile(node.item, f"{at}{{}}")
            return item and _each_value(item)
        case Record():
            members = _members(node, at)
            return _each_member(members) if members else None
        case Enumeration():
            return None
        case Primitive() | Fixed():
            kind = node.logical or ("bytes" if isinstance(node, Fixed) else node.kind)
            parse = _PARSERS.get(kind)
            return parse and _text_as(parse, kind, at)


def _each_item(convert: Convert) -> Convert:
    return lambda value: (
        [convert(item) for item in value] if isinstance(value, list) else value
    )


def _each_value(convert: Convert) -> Convert:
    return lambda value: (
        {name: convert(item) for name, item in value.items()}
        if isinstance(value, dict)
        else value
    )


def _each_member(members: dict[str, Convert]) -> Convert:
    return lambda value: (
        _convert_members(value, members) if isinstance(value, dict) else value
    )


def _text_as(parse: Callable[[str], object], kind: str, at: str) -> Convert:
    def convert(value: object) -> object:
        if not isinstance(value, str):
            return value
        try:
            return parse(value)
        except (ValueError, InvalidOperation) as exc:
            raise _UnreadableTextError(
                f"field {at}: {value[:40]!r} is no {kind}"
            ) from exc

    return convert


def _instant(text: str) -> dt.datetime:
    moment = dt.datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(text)
    # Convert to UTC now: an offset may lead out of the years that the codec can write.
    try:
        return moment.astimezone(dt.UTC)
    except OverflowError as exc:
        raise ValueError(text) from exc


def _local(text: str) -> dt.datetime:
    moment = dt.datetime.fromisoformat(text)
    if moment.tzinfo is not None:
        raise ValueError(text)
    return moment


def _base64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


_PARSERS: dict[str, Callable[[str], object]] = {
    "date": dt.date.fromisoformat,
    "timestamp-millis": _instant,
    "timestamp-micros": _instant,
    "local-timestamp-millis": _local,
    "local-timestamp-micros": _local,
    "decimal": Decimal,
    "bytes": _base64,
}
