"""Read JSON values as values of a contract; types that JSON lacks travel as text.

Dates, times, instants and durations are ISO 8601 (an instant with its offset),
decimals are texts, and bytes are base64. Whole numbers for instants, times and dates
count in the contract's unit. A value of a union of several types is an object of one
member, which names the branch. All other values pass through unchanged; the encoder
decides whether they fit.
"""

from __future__ import annotations

import base64
import collections.abc
import datetime as dt
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation

from tallyweir.schemas.contract import Contract
from tallyweir.schemas.formats.format import EventRecord
from tallyweir.schemas.schema_tree import (
    Enumeration,
    Fixed,
    Mapping,
    Nullable,
    Primitive,
    Record,
    SchemaNode,
    Sequence,
    Union,
    describe,
)

Convert = Callable[[object], object]
NamedConverts = collections.abc.Mapping[str, Convert | None]

_SHOWN = 60
_BELOW_MICROS = re.compile(r"[.,][0-9]{6}[0-9]*[1-9]")


class UnreadableTextError(Exception):
    """A text does not read as its field's type.

    Attributes:
        at: The field's path.
        saw: The text and the type, without the field's path.
    """

    def __init__(self, at: str, text: str, kind: str) -> None:
        super().__init__(at, text, kind)
        self.at = at
        self.saw = f"{text[:_SHOWN]!r} is no {kind}"


def compile_reader(contract: Contract) -> Callable[[dict[str, object]], EventRecord]:
    """Build the function that makes a record of a parsed JSON object.

    It raises ``UnreadableTextError``.
    """
    members = _members(contract.tree, "")
    return lambda value: _convert_members(value, members)


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
    convert: Convert | None = None
    match node:
        case Nullable():
            convert = _compile(node.item, at)
        case Union():
            pairs = zip(node.names, node.branches, strict=True)
            convert = _of_members(
                {
                    name: _compile(branch, f"{at}.{name}")
                    for name, branch in pairs
                    if branch is not None
                }
            )
        case Sequence():
            item = _compile(node.item, f"{at}[]")
            convert = item and _each_item(item)
        case Mapping():
            item = _compile(node.item, f"{at}{{}}")
            convert = item and _each_value(item)
        case Record():
            convert = _of_members(_members(node, at))
        case Enumeration():
            pass
        case Primitive() | Fixed():
            kind = node.logical or ("bytes" if isinstance(node, Fixed) else node.kind)
            parse = PARSERS.get(kind)
            convert = parse and _text_as(parse, describe(node), at)
    return convert


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


def _of_members(found: NamedConverts) -> Convert | None:
    members = {name: convert for name, convert in found.items() if convert}
    if not members:
        return None
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
            raise UnreadableTextError(at, value, kind) from exc

    return convert


def _moment(text: str) -> dt.datetime:
    # Python drops the digits of a second that it does not keep.
    if _BELOW_MICROS.search(text):
        raise ValueError(text)
    return dt.datetime.fromisoformat(text)


def _instant(text: str) -> dt.datetime:
    moment = _moment(text)
    if moment.tzinfo is None:
        raise ValueError(text)
    # Convert to UTC now: an offset may lead out of the years that a record may have.
    try:
        return moment.astimezone(dt.UTC)
    except OverflowError as exc:
        raise ValueError(text) from exc


def _local(text: str) -> dt.datetime:
    moment = _moment(text)
    if moment.tzinfo is not None:
        raise ValueError(text)
    return moment


def _time(text: str) -> dt.time:
    if _BELOW_MICROS.search(text):
        raise ValueError(text)
    return dt.time.fromisoformat(text)


def _base64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


#: How the text of each type reads that JSON lacks.
PARSERS: dict[str, Callable[[str], object]] = {
    "date": dt.date.fromisoformat,
    "timestamp-millis": _instant,
    "timestamp-micros": _instant,
    "local-timestamp-millis": _local,
    "local-timestamp-micros": _local,
    "timestamp-nanos": _instant,
    "local-timestamp-nanos": _local,
    "time-millis": _time,
    "time-micros": _time,
    "decimal": Decimal,
    "bytes": _base64,
}
