"""Values of Avro's types in Python, by fastavro.

fastavro gets a schema that is made of a tree, in which each branch of a union of
several types is a record of one field. So a value of such a union is an object of one
member, ``{"long": 5}``, as in Avro's JSON encoding, and its branch is never guessed.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import fastavro
from fastavro.read import LOGICAL_READERS
from fastavro.write import LOGICAL_WRITERS

from tallyweir.schemas.record_check import duration_bytes
from tallyweir.schemas.schema_tree import (
    NANOS_PER_MICRO,
    Enumeration,
    Fixed,
    Mapping,
    Nullable,
    Primitive,
    Record,
    RecordField,
    SchemaNode,
    Sequence,
    Union,
)

Schema = Any
"""A schema as fastavro takes it."""

_MILLIS_PER_SECOND = 1_000
#: The namespace of the records that stand for branches; no contract is in it.
_BRANCHES = "tallyweir_union"
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def fastavro_schema(node: SchemaNode) -> Schema:
    """Write a type as a schema for fastavro, whose readers take defaults as values."""
    written = _SchemaWriter(default_value).write(node)
    return fastavro.parse_schema(written, _ignore_default_error=True)


def avro_json(node: SchemaNode) -> Schema:
    """Write a type as Avro's own JSON, if it has no union of several types."""
    return _SchemaWriter(lambda _, default: default).write(node)


def default_value(node: SchemaNode, default: object) -> object:
    """Return what fastavro reads where a value is the default in a schema's JSON."""
    value = default
    match node:
        case Nullable(null_index=0) | Union(branches=(None, *_)):
            value = None
        case Nullable():
            value = default_value(node.item, default)
        case Union():
            first = node.branches[0]
            assert first is not None, "null was a case of its own"
            value = {node.names[0]: default_value(first, default)}
        case Sequence():
            assert isinstance(default, list), "the contract was checked"
            value = [default_value(node.item, one) for one in default]
        case Mapping():
            assert isinstance(default, dict), "the contract was checked"
            value = {key: default_value(node.item, one) for key, one in default.items()}
        case Record():
            assert isinstance(default, dict), "the contract was checked"
            value = {
                one.name: default_value(one.node, default.get(one.name, one.default))
                for one in node.fields
            }
        case Primitive() | Fixed():
            value = _scalar_default(node, default)
    return value


def _scalar_default(node: Primitive | Fixed, default: object) -> object:
    kind = "fixed" if isinstance(node, Fixed) else node.kind
    if kind in {"bytes", "fixed"}:
        # Each character stands for one byte.
        default = str(default).encode("latin-1", errors="replace")
    read = LOGICAL_READERS.get(f"{kind}-{node.logical}")
    return default if read is None else read(default, _scalar(node), None)


class _SchemaWriter:
    """Writes one schema, in which a named type is declared at its first use."""

    def __init__(self, default_of: Callable[[SchemaNode, object], object]) -> None:
        self._default_of = default_of
        self._declared: set[str] = set()
        self._unions = 0

    def write(self, node: SchemaNode) -> Schema:
        match node:
            case Primitive():
                written: Schema = _scalar(node)
            case Nullable():
                written = [self.write(node.item)]
                written.insert(node.null_index, "null")
            case Union():
                self._unions += 1
                written = list(self._branches(node, f"{_BRANCHES}{self._unions}"))
            case Sequence():
                written = {"type": "array", "items": self.write(node.item)}
            case Mapping():
                written = {"type": "map", "values": self.write(node.item)}
            case Record() | Enumeration() | Fixed():
                written = self._named(node)
        return written

    def _branches(self, node: Union, namespace: str) -> Iterator[Schema]:
        # fastavro resolves records by their names without the namespace.
        for name, branch in zip(node.names, node.branches, strict=True):
            if branch is None:
                yield "null"
                continue
            yield {
                "type": "record",
                "name": f"{namespace}.{name.replace('.', '_')}",
                "fields": [{"name": name, "type": self.write(branch)}],
            }

    def _named(self, node: Record | Enumeration | Fixed) -> Schema:
        if node.name in self._declared:
            return node.name
        self._declared.add(node.name)
        # A name without a namespace must not take that of the type around it.
        namespace, _, name = node.name.rpartition(".")
        named = {"name": name, "namespace": namespace, "aliases": list(node.aliases)}
        match node:
            case Record():
                fields = [self._field(one) for one in node.fields]
                return {**named, "type": "record", "fields": fields}
            case Enumeration():
                written = {**named, "type": "enum", "symbols": list(node.symbols)}
                return written | ({"default": node.default} if node.default else {})
            case Fixed():
                return {**named, **_scalar(node)}

    def _field(self, field: RecordField) -> Schema:
        written = {
            "name": field.name,
            "type": self.write(field.node),
            "aliases": list(field.aliases),
        }
        if field.has_default:
            written["default"] = self._default_of(field.node, field.default)
        return written


def _scalar(node: Primitive | Fixed) -> dict[str, object]:
    written: dict[str, object] = (
        {"type": "fixed", "size": node.size}
        if isinstance(node, Fixed)
        else {"type": node.kind}
    )
    if node.logical is not None:
        written["logicalType"] = node.logical
    if node.logical == "decimal":
        written |= {"precision": node.precision, "scale": node.scale}
    return written


def duration_text(raw: bytes) -> str:
    """Write a duration's twelve bytes as ISO 8601: ``P1M2DT3.004S``."""
    months, days, millis = (
        int.from_bytes(raw[start : start + 4], "little") for start in (0, 4, 8)
    )
    seconds, millis = divmod(millis, _MILLIS_PER_SECOND)
    return f"P{months}M{days}DT{seconds}.{millis:03}S"


def decimal_text(unscaled: int, scale: int) -> str:
    """Write a decimal with all digits of its scale: ``-0.0500``."""
    if not scale:
        return str(unscaled)
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    return f"{'-' if unscaled < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"


def _read_duration(raw: bytes, *_: object) -> str:
    return duration_text(raw)


def _read_nanos(value: int, *_: object) -> dt.datetime | int:
    # Files hold what no walk has checked; the record check refuses a count that is no
    # instant.
    if value % NANOS_PER_MICRO:
        return value
    return _EPOCH + dt.timedelta(microseconds=value // NANOS_PER_MICRO)


def _read_local_nanos(value: int, *_: object) -> dt.datetime | int:
    found = _read_nanos(value)
    return found if isinstance(found, int) else found.replace(tzinfo=None)


def _read_uuid(raw: bytes, *_: object) -> uuid.UUID:
    return uuid.UUID(bytes=bytes(raw))


# Of a union, fastavro writes each value as each branch to find out which one fits. So a
# value that is none of the type stays what it is.


def _write_duration(value: object, *_: object) -> object:
    return duration_bytes(value) if isinstance(value, str) else value


def _write_nanos(value: object, *_: object) -> object:
    if not isinstance(value, dt.datetime):
        return value
    since = value.replace(tzinfo=value.tzinfo or dt.UTC) - _EPOCH
    return since // dt.timedelta(microseconds=1) * NANOS_PER_MICRO


def _write_uuid(value: object, *_: object) -> object:
    if isinstance(value, str):
        value = uuid.UUID(value)
    return value.bytes if isinstance(value, uuid.UUID) else value


LOGICAL_READERS.update(
    {
        "fixed-duration": _read_duration,
        "fixed-uuid": _read_uuid,
        "long-timestamp-nanos": _read_nanos,
        "long-local-timestamp-nanos": _read_local_nanos,
    }
)
LOGICAL_WRITERS.update(
    {
        "fixed-duration": _write_duration,
        "fixed-uuid": _write_uuid,
        "long-timestamp-nanos": _write_nanos,
        "long-local-timestamp-nanos": _write_nanos,
    }
)
