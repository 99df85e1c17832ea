"""The types of an event's fields as a tree: by construction not recursive.

Only ``Format.read_schema`` makes trees. Code that holds a tree can therefore walk it
without a depth check of its own. The words for types are Avro's, in all formats.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Primitive:
    """A type without parts: boolean, int, long, float, double, string or bytes.

    Beyond Avro's logical types, an int may be a ``smallint``, and a string ``json``: a
    JSON text, which is ``jsonb`` in Postgres; ``interval``: a text such as
    ``PT-1H-30M-0.5S``; or ``numeric``: the digits of a number, as JSON writes it.
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
class Union:
    """One of several types, at least two without null; None stands for null.

    A value is null, or an object of one member, whose name is that of the branch.
    """

    branches: tuple[SchemaNode | None, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each branch, as Avro's JSON encoding has it; all differ."""
        return tuple(map(_branch_name, self.branches))


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
    """A field of a record; a reader without data for it takes the default.

    ``default`` is the default as it stands in the schema.
    """

    name: str
    node: SchemaNode
    has_default: bool = False
    default: object = field(default=None, compare=False, repr=False)
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record with at least one field."""

    name: str
    fields: tuple[RecordField, ...]
    aliases: tuple[str, ...] = ()


SchemaNode = (
    Primitive | Fixed | Enumeration | Nullable | Union | Sequence | Mapping | Record
)

# The years 0001 to 9999 in each unit, both ends included.
_DAYS = (-719_162, 2_932_896)
_MILLIS = (-62_135_596_800_000, 253_402_300_799_999)
_MICROS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
INT = (-(1 << 31), (1 << 31) - 1)
LONG = (-(1 << 63), (1 << 63) - 1)
#: A timestamp in nanoseconds is kept in microseconds, if it is a whole number of them.
NANOS_PER_MICRO = 1_000
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
    "timestamp-nanos": LONG,
    "local-timestamp-nanos": LONG,
    "time-millis": (0, 86_399_999),
    "time-micros": (0, 86_399_999_999),
}

#: What ``describe`` calls the types with parts.
NESTED_TYPES = frozenset({"array", "map", "record"})

#: The most digits of a decimal that Spark and Arrow hold; a wider one is a text there.
NARROW_DIGITS_MAX = 38

#: The Postgres types of the types whose values travel as text, by ``column_type``.
_TEXT_TYPES = {
    "json": "jsonb",
    "time-millis": "time without time zone",
    "time-micros": "time without time zone",
    "duration": "interval",
    "interval": "interval",
    "numeric": "numeric",
}
#: The logical types that only the decoder of a format reads exactly, not Spark.
_BEYOND_SPARK = frozenset(
    {"timestamp-nanos", "local-timestamp-nanos", *_TEXT_TYPES} - {"json"}
)


def item_of(node: SchemaNode) -> SchemaNode:
    """Return the type of the values that are not null."""
    return node.item if isinstance(node, Nullable) else node


def may_be_null(node: SchemaNode) -> bool:
    """Tell whether null is a value of a type."""
    return isinstance(node, Nullable) or (
        isinstance(node, Union) and None in node.branches
    )


def is_flat(node: SchemaNode) -> bool:
    """Tell whether a type has no parts."""
    return isinstance(item_of(node), Primitive | Fixed | Enumeration)


def is_beyond_spark(node: SchemaNode) -> bool:
    """Tell whether only the decoder of a format reads values of a type exactly.

    Spark then gets the column from the decoder: a type with parts as JSON.
    """
    match node:
        case Union():
            return True
        case Nullable() | Sequence() | Mapping():
            return is_beyond_spark(node.item)
        case Record():
            return any(is_beyond_spark(one.node) for one in node.fields)
        case Primitive() | Fixed():
            return (
                node.logical in _BEYOND_SPARK
                or node.precision > NARROW_DIGITS_MAX
                or (isinstance(node, Fixed) and node.logical == "uuid")
            )
        case Enumeration():
            return False


def column_type(node: SchemaNode) -> str:
    """Name the type of a field's column; ``json`` if it holds a JSON text.

    That is the form of a type with parts that is beyond Spark.
    """
    item = item_of(node)
    if not is_flat(item) and is_beyond_spark(item):
        return "json"
    return describe(item)


def travels_as(kind: str) -> str | None:
    """Return the Postgres type of a column that travels to it as text; else None.

    Args:
        kind: A type as ``column_type`` names it.
    """
    if kind.startswith("decimal("):
        digits = int(kind[len("decimal(") :].partition(",")[0])
        return "numeric" if digits > NARROW_DIGITS_MAX else None
    return _TEXT_TYPES.get(kind)


def _branch_name(node: SchemaNode | None) -> str:
    match node:
        case None:
            return "null"
        case Primitive():
            return node.kind
        case Sequence():
            return "array"
        case Mapping():
            return "map"
        case Record() | Fixed() | Enumeration():
            return node.name
        case _:
            raise AssertionError("a union holds no union")


def describe(node: SchemaNode) -> str:
    """Name a type as an error message would: ``decimal(10,2)``, ``long or null``."""
    match node:
        case Primitive() | Fixed() if node.logical == "decimal":
            name = f"decimal({node.precision},{node.scale})"
        case Primitive():
            name = node.logical or node.kind
        case Fixed():
            name = node.logical or f"fixed({node.size})"
        case Union():
            name = "union"
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
