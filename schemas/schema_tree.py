"""An Avro schema as a tree: names resolved, and by construction not recursive.

Only ``safety.parse_schema`` makes trees. Code that holds a tree can therefore walk it,
and the bytes it describes, without a depth check of its own. Every type here takes at
least one byte on the wire.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Primitive:
    """A type without parts: boolean, int, long, float, double, string or bytes."""

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
    """One of several symbols; the wire holds its index."""

    name: str
    symbols: tuple[str, ...]
    default: str | None = None
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Nullable:
    """A union of null and one other type, in either order."""

    item: SchemaNode
    null_index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequence:
    """An Avro array."""

    item: SchemaNode


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    """An Avro map with string keys; if a key repeats, its last value wins."""

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
