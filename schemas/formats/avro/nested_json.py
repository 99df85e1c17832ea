"""Write values with parts as JSON, the form in which Postgres stores them.

The form is that of Spark's ``to_json``, which writes such values where Spark reads
them; unlike Spark, it has all six decimals of a second with more than three. A value of
a union of several types is an object of one member, which names the branch.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

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
)

ToJson = Callable[[Any], str]

_MICROS_PER_MILLI = 1_000


def compile_json(node: SchemaNode) -> ToJson:
    """Build the function that writes a value that fastavro has read as JSON."""
    match node:
        case Record():
            write = _record_json(node)
        case Nullable():
            write = _nullable_json(compile_json(node.item))
        case Union():
            write = _union_json(node)
        case Sequence():
            write = _list_json(compile_json(node.item))
        case Mapping():
            write = _map_json(compile_json(node.item))
        case Enumeration():
            write = _text
        case Fixed():
            write = _JSON[node.logical or "bytes"]
        case Primitive():
            write = _JSON[node.logical or node.kind]
    return write


def _record_json(node: Record) -> ToJson:
    members = [
        (f"{_text(one.name)}:", one.name, compile_json(one.node)) for one in node.fields
    ]
    return lambda value: _object(
        f"{mark}{write(value[name])}" for mark, name, write in members
    )


def _nullable_json(write_item: ToJson) -> ToJson:
    return lambda value: "null" if value is None else write_item(value)


def _list_json(write_item: ToJson) -> ToJson:
    return lambda value: f"[{','.join(map(write_item, value))}]"


def _map_json(write_item: ToJson) -> ToJson:
    return lambda value: _object(
        f"{_text(name)}:{write_item(one)}" for name, one in value.items()
    )


def _union_json(node: Union) -> ToJson:
    writes = {
        name: compile_json(branch)
        for name, branch in zip(node.names, node.branches, strict=True)
        if branch is not None
    }

    def write(value: dict[str, object] | None) -> str:
        if value is None:
            return "null"
        ((name, one),) = value.items()
        return f"{{{_text(name)}:{writes[name](one)}}}"

    return write


def _object(members: Iterable[str]) -> str:
    return f"{{{','.join(members)}}}"


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _quoted(value: object) -> str:
    return f'"{value}"'


def _float_json(value: float) -> str:
    return repr(value) if math.isfinite(value) else f'"{_NAMES[str(value)]}"'


def _instant_json(value: dt.datetime) -> str:
    is_millis = value.microsecond % _MICROS_PER_MILLI == 0
    written = value.replace(tzinfo=None).isoformat(
        timespec="milliseconds" if is_millis else "microseconds"
    )
    return f'"{written}{"" if value.tzinfo is None else "Z"}"'


#: Spark's names of the numbers that JSON lacks.
_NAMES = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_JSON: dict[str, ToJson] = {
    "boolean": lambda value: "true" if value else "false",
    "int": str,
    "long": str,
    "float": lambda value: _float_json(float(str(np.float32(value)))),
    "double": _float_json,
    "string": _text,
    "bytes": lambda value: _quoted(base64.b64encode(value).decode()),
    "decimal": lambda value: f"{value:f}",
    "uuid": _quoted,
    "duration": _quoted,
    "date": lambda value: _quoted(value.isoformat()),
    "time-millis": lambda value: _quoted(value.isoformat("microseconds")),
    "time-micros": lambda value: _quoted(value.isoformat("microseconds")),
    **dict.fromkeys(
        (
            *("timestamp-millis", "timestamp-micros", "timestamp-nanos"),
            "local-timestamp-millis",
            "local-timestamp-micros",
            "local-timestamp-nanos",
        ),
        _instant_json,
    ),
}
