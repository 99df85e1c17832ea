"""The types of an event's fields as a tree: by construction not recursive.

Only ``Format.read_schema`` makes trees. Code that holds a tree can therefore walk it
without a depth check of its own. The words for types are Avro's, in all formats.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Primitive:
    """A type without parts: boolean, int, long, float, double, string or bytes.

    Beyond Avro's logical types, an int may be a ``smallint``, and a string ``json``: a
    JSON text, which is ``jsonb`` in Postgres.
    """

    kind: str
    logical: str | None = None
    precision: int = 0
    scale: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """A given number of bytes, at least one."""

    name: str
    size: int
    logical: str | None = None
    precision: int = 0
    scale: int = 0
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Enumeration:
    """One of several symbols."""

    name: str
    symbols: tuple[str, ...]
    default: str | None = None
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Nullable:
    """Null or one other type; ``null_index`` is the place of null in Avro's union."""

    item: SchemaNode
    null_index: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequence:
    """A list of values of one type."""

    item: SchemaNode


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    """A map with string keys; if a key repeats, its last value wins."""

    item: SchemaNode


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordField:
    """A field of a record; a reader without data for it takes the default."""

    name: str
    node: SchemaNode
    has_default: bool = False
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record with at least one field."""

    name: str
    fields: tuple[RecordField, ...]
    aliases: tuple[str, ...] = ()


SchemaNode = Primitive | Fixed | Enumeration | Nullable | Sequence | Mapping | Record

# The years 0001 to 9999 in each unit, both ends included.
_DAYS = (-719_162, 2_932_896)
_MILLIS = (-62_135_596_800_000, 253_402_300_799_999)
_MICROS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
INT = (-(1 << 31), (1 << 31) - 1)
LONG = (-(1 << 63), (1 << 63) - 1)
_SMALLINT = (-(1 << 15), (1 << 15) - 1)

#: The lowest and the highest value of each type that counts, in its unit.
NUMBER_BOUNDS = {
    "smallint": _SMALLINT,
    "int": INT,
    "long": LONG,
    "date": _DAYS,
    "timestamp-millis": _MILLIS,
    "local-timestamp-millis": _MILLIS,
    "timestamp-micros": _MICROS,
    "local-timestamp-micros": _MICROS,
}

#: What ``describe`` calls the types with parts.
NESTED_TYPES = frozenset({"array", "map", "record"})


def item_of(node: SchemaNode) -> SchemaNode:
    """Return the type of the values that are not null."""
    return node.item if isinstance(node, Nullable) else node


def describe(node: SchemaNode) -> str:
    """Name a type as an error message would: ``decimal(10,2)``, ``long or null``."""
    match node:
        case Primitive() | Fixed() if node.logical == "decimal":
            name = f"decimal({node.precision},{node.scale})"
        case Primitive():
            name = node.logical or node.kind
        case Fixed():
            name = f"fixed({node.size})"
        case Nullable():
            name = f"{describe(node.item)} or null"
        case Enumeration():
            name = "enum"
        case Sequence():
            name = "array"
        case Mapping():
            name = "map"
        case Record():
            name = "record"
    return name
