"""Refuse contracts whose payloads could kill a decoder, before any payload arrives.

No exception handler around a decoder helps against such payloads: a few kilobytes of a
recursive type overflow the C stack and end the process, and five bytes can claim an
array of twenty million nulls. Therefore this module checks the schema:

- no type contains itself, and nesting ends at ``NESTING_MAX``;
- every type takes at least one byte on the wire, so that a payload of n bytes never
  holds more than n items;
- decimals have at most ``DECIMAL_PRECISION_MAX`` digits;
- a schema has at most ``NODES_MAX`` types, counted after names are resolved;
- names can be columns, even where case does not count.

Types that Spark or Postgres would read differently from what the producer meant are
refused as well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn, TypeGuard

from tallyweir.schemas.errors import UnsafeContractError, raise_faults
from tallyweir.schemas.schema_tree import (
    NANOS_PER_MICRO,
    NUMBER_BOUNDS,
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
    describe,
)

NESTING_MAX = 16
NODES_MAX = 1_000
DECIMAL_PRECISION_MAX = 1_000
FIXED_BYTES_MAX = 65_536

FIELD_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")

_PRIMITIVES = frozenset(
    {"boolean", "int", "long", "float", "double", "string", "bytes"}
)
_LOGICAL_TYPES = {
    "date": "int",
    "timestamp-millis": "long",
    "timestamp-micros": "long",
    "local-timestamp-millis": "long",
    "local-timestamp-micros": "long",
    "timestamp-nanos": "long",
    "local-timestamp-nanos": "long",
    "time-millis": "int",
    "time-micros": "long",
    "uuid": "string",
    "decimal": "bytes",
}
#: The logical types of ``fixed`` besides decimals, with their sizes.
_FIXED_TYPES = {"uuid": 16, "duration": 12}
_Json = dict[str, object]


def parse_schema(schema: object) -> Record:
    """Turn a schema's JSON into a tree that is safe to walk.

    Raises:
        UnsafeContractError: The schema breaks rules of this module; the error names
            each rule and its field.
    """
    parser = _SchemaParser()
    with parser.noting():
        node = parser.parse(schema, at="", namespace="", depth=0)
    raise_faults(parser.faults)
    if not isinstance(node, Record):
        raise UnsafeContractError(
            "CONTRACT_NOT_A_RECORD",
            saw=f"The outermost type is {describe(node)}.",
            why="An event needs named fields to become columns.",
            fix="Wrap the type in a record.",
        )
    return node


def _refuse(code: str, at: str, saw: str, why: str, fix: str) -> NoReturn:
    place = f"Field {at}: " if at else "Outermost type: "
    raise UnsafeContractError(code, saw=place + saw, why=why, fix=fix)


def _refuse_form(at: str, saw: str) -> NoReturn:
    _refuse(
        "CONTRACT_MALFORMED",
        at,
        saw,
        why="The file is not a valid Avro schema.",
        fix="Correct the .avsc file (Avro specification, Schema Declaration).",
    )


class _ToldError(UnsafeContractError):
    """A named type is refused at a later use, perhaps after its declaration was."""


class _SchemaParser:
    """One walk over one schema; holds the names seen and the number of types.

    Attributes:
        faults: The problems found. A type that is named again is reported once.
    """

    def __init__(self) -> None:
        self.faults: list[UnsafeContractError] = []
        self._is_too_large = False
        self._declared: dict[str, tuple[_Json, str]] = {}
        self._open: list[str] = []
        self._nodes = 0

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Note a refusal of the block and go on, so that the rest is checked too."""
        try:
            yield
        except _ToldError:
            pass
        except UnsafeContractError as exc:
            if not self._is_too_large:
                self.faults.append(exc)
            # Every later type exceeds the limit as well.
            self._is_too_large |= exc.code == "CONTRACT_TOO_LARGE"

    def parse(
        self, schema: object, *, at: str, namespace: str, depth: int
    ) -> SchemaNode:
        self._nodes += 1
        if self._nodes > NODES_MAX:
            _refuse(
                "CONTRACT_TOO_LARGE",
                at,
                f"more than {NODES_MAX:,} types, once names are resolved.",
                why="Decoding time and memory grow with them.",
                fix="Split the event, or drop fields that are not read.",
            )
        if depth > NESTING_MAX:
            _refuse(
                "CONTRACT_TOO_DEEP",
                at,
                f"types are nested more than {NESTING_MAX} deep.",
                why="Decoders recurse, and a deep payload overflows their stack.",
                fix="Flatten the record.",
            )
        if isinstance(schema, str):
            return self._parse_name(schema, at=at, namespace=namespace, depth=depth)
        if isinstance(schema, list):
            return self._parse_union(schema, at=at, namespace=namespace, depth=depth)
        if isinstance(schema, dict):
            return self._parse_object(schema, at=at, namespace=namespace, depth=depth)
        _refuse_form(at, f"a type is {json.dumps(schema)[:40]}.")

    def _parse_name(
        self, name: str, *, at: str, namespace: str, depth: int
    ) -> SchemaNode:
        if name in _PRIMITIVES:
            return Primitive(kind=name)
        if name == "null":
            _refuse_zero_bytes(at, "null alone")
        full_name = _full_name(name, namespace)
        if full_name in self._open:
            _refuse(
                "CONTRACT_RECURSIVE",
                at,
                f"{full_name} contains itself.",
                why="A small payload of a recursive type overflows a decoder's stack "
                "and ends the process.",
                fix="Flatten the type, or carry the nested part as JSON in a string.",
            )
        if full_name not in self._declared:
            _refuse_form(at, f"the type {name!r} is not known here.")
        declaration, outer_namespace = self._declared[full_name]
        told = len(self.faults)
        try:
            node = self._parse_object(
                declaration, at=at, namespace=outer_namespace, depth=depth
            )
        except UnsafeContractError as exc:
            if told:
                raise _ToldError(
                    exc.code, saw=exc.saw, why=exc.why, fix=exc.fix
                ) from exc
            raise
        if told:
            del self.faults[told:]
        return node

    def _parse_union(
        self, branches: list[object], *, at: str, namespace: str, depth: int
    ) -> SchemaNode:
        others = [branch for branch in branches if branch != "null"]
        nulls = len(branches) - len(others)
        if nulls > 1 or not others or len(branches) == 1:
            _refuse(
                "CONTRACT_UNION_UNSUPPORTED",
                at,
                f"a union of {json.dumps(branches)[:80]}.",
                why="A union is of different types, of which null may be one.",
                fix='Write ["null", TYPE], or several types.',
            )
        items: list[SchemaNode] = []
        for one in others:
            with self.noting():
                items.append(
                    self.parse(one, at=at, namespace=namespace, depth=depth + 1)
                )
        if len(items) < len(others):
            raise _ToldError("", saw="", why="", fix="")
        if any(isinstance(item, Nullable | Union) for item in items):
            _refuse_form(at, "a union holds a union.")
        if len(items) == 1:
            return Nullable(item=items[0], null_index=branches.index("null"))
        rest = iter(items)
        found = Union(
            branches=tuple(None if one == "null" else next(rest) for one in branches)
        )
        if len(set(found.names)) < len(branches):
            _refuse_form(at, "a union has a type twice.")
        return found

    def _parse_object(
        self, schema: _Json, *, at: str, namespace: str, depth: int
    ) -> SchemaNode:
        kind = schema.get("type")
        node: SchemaNode
        match kind:
            case "array" | "map":
                part, mark = ("items", "[]") if kind == "array" else ("values", "{}")
                item = self.parse(
                    schema.get(part),
                    at=f"{at}{mark}",
                    namespace=namespace,
                    depth=depth + 1,
                )
                node = Sequence(item=item) if kind == "array" else Mapping(item=item)
            case "record":
                node = self._parse_record(
                    schema, at=at, namespace=namespace, depth=depth
                )
            case "enum":
                node = self._parse_enumeration(schema, at=at, namespace=namespace)
            case "fixed":
                node = self._parse_fixed(schema, at=at, namespace=namespace)
            case str() if kind in _PRIMITIVES:
                node = _parse_logical(schema, kind, at=at)
            case _:
                node = self.parse(kind, at=at, namespace=namespace, depth=depth + 1)
        return node

    def _declare(self, schema: _Json, *, at: str, namespace: str) -> str:
        name = schema.get("name")
        own_namespace = schema.get("namespace", namespace)
        if not isinstance(name, str) or not name:
            _refuse_form(at, "a named type has no name.")
        if not isinstance(own_namespace, str):
            _refuse_form(at, f"the namespace of {name} is not a string.")
        full_name = _full_name(name, own_namespace)
        earlier = self._declared.setdefault(full_name, (schema, namespace))
        if earlier[0] is not schema:
            _refuse_form(at, f"{full_name} is declared twice.")
        return full_name

    def _parse_record(
        self, schema: _Json, *, at: str, namespace: str, depth: int
    ) -> Record:
        full_name = self._declare(schema, at=at, namespace=namespace)
        declared = schema.get("fields")
        if not isinstance(declared, list):
            _refuse_form(at, f"the record {full_name} has no list of fields.")
        if not declared:
            _refuse_zero_bytes(at, "an empty record")
        self._open.append(full_name)
        fields: dict[str, RecordField] = {}
        for entry in declared:
            with self.noting():
                field = self._parse_field(
                    entry,
                    at=at,
                    namespace=full_name.rpartition(".")[0],
                    depth=depth + 1,
                )
                # Spark and SQL ignore the case of column names.
                if field.name.lower() in fields:
                    _refuse_form(at, f"the field {field.name} is declared twice.")
                fields[field.name.lower()] = field
        self._open.pop()
        return Record(
            name=full_name, fields=tuple(fields.values()), aliases=_aliases(schema, at)
        )

    def _parse_field(
        self, entry: object, *, at: str, namespace: str, depth: int
    ) -> RecordField:
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            _refuse_form(at, "a field has no name.")
        name = entry["name"]
        with self.noting():
            _check_field_name(name)
        place = f"{at}.{name}" if at else name
        known = len(self.faults)
        node = self.parse(entry.get("type"), at=place, namespace=namespace, depth=depth)
        has_default = "default" in entry and len(self.faults) == known
        if has_default and not _fits_default(entry["default"], node):
            _refuse_form(
                place,
                (
                    f"the default {json.dumps(entry['default'])[:40]} does not match "
                    f"{_first_branch(node)} (in a union, the first type counts)."
                ),
            )
        return RecordField(
            name=name,
            node=node,
            has_default="default" in entry,
            default=entry.get("default"),
            aliases=_aliases(entry, place),
        )

    def _parse_enumeration(
        self, schema: _Json, *, at: str, namespace: str
    ) -> Enumeration:
        full_name = self._declare(schema, at=at, namespace=namespace)
        symbols = schema.get("symbols")
        if not _is_texts(symbols) or not symbols or len(set(symbols)) != len(symbols):
            _refuse_form(at, f"the enum {full_name} needs a list of distinct symbols.")
        default = schema.get("default")
        if default is not None and default not in symbols:
            _refuse_form(at, f"the default of {full_name} is not one of its symbols.")
        return Enumeration(
            name=full_name,
            symbols=tuple(symbols),
            default=str(default) if default is not None else None,
            aliases=_aliases(schema, at),
        )

    def _parse_fixed(self, schema: _Json, *, at: str, namespace: str) -> Fixed:
        full_name = self._declare(schema, at=at, namespace=namespace)
        size = schema.get("size")
        if size == 0:
            _refuse_zero_bytes(at, "fixed of size 0")
        if not _is_whole(size) or not 0 < size <= FIXED_BYTES_MAX:
            _refuse_form(at, f"{full_name} needs a size of 1 to {FIXED_BYTES_MAX:,}.")
        logical = schema.get("logicalType")
        precision, scale = 0, 0
        if logical == "decimal":
            precision, scale = _decimal_digits(schema, at)
            if 10**precision > 1 << (8 * size - 1):
                _refuse_form(at, f"{precision} digits do not fit in {size} bytes.")
        elif logical is not None and (
            not isinstance(logical, str) or _FIXED_TYPES.get(logical) != size
        ):
            _refuse_logical(at, logical, f"fixed({size})")
        return Fixed(
            name=full_name,
            size=size,
            logical=logical,
            precision=precision,
            scale=scale,
            aliases=_aliases(schema, at),
        )


def _check_field_name(name: str) -> None:
    if not FIELD_NAME.fullmatch(name):
        _refuse(
            "CONTRACT_FIELD_NAME",
            f"{name[:80]!r}",
            "the name cannot be a column.",
            why="A column is a letter or underscore and up to 62 letters, digits "
            "or underscores.",
            fix="Rename the field; keep the old name as an alias.",
        )


def _refuse_zero_bytes(at: str, what: str) -> NoReturn:
    _refuse(
        "CONTRACT_ZERO_BYTE_TYPE",
        at,
        f"{what} takes no bytes on the wire.",
        why="An array of them can claim twenty million items in five bytes, and a "
        "column of them holds nothing.",
        fix="Remove it, or give it a type with a value.",
    )


def _refuse_logical(at: str, logical: object, kind: str) -> NoReturn:
    _refuse(
        "CONTRACT_TYPE_UNSUPPORTED",
        at,
        f"logicalType {str(logical)[:40]!r} on {kind}.",
        why="Spark and Postgres would not agree on what it means.",
        fix="Use one of "
        f"{', '.join(sorted({*_LOGICAL_TYPES, *_FIXED_TYPES}))} on its own type, "
        "or leave logicalType out.",
    )


def _parse_logical(schema: _Json, kind: str, *, at: str) -> Primitive:
    logical = schema.get("logicalType")
    if logical is None:
        return Primitive(kind=kind)
    if not isinstance(logical, str) or _LOGICAL_TYPES.get(logical) != kind:
        _refuse_logical(at, logical, kind)
    if logical != "decimal":
        return Primitive(kind=kind, logical=logical)
    precision, scale = _decimal_digits(schema, at)
    return Primitive(kind=kind, logical=logical, precision=precision, scale=scale)


def _decimal_digits(schema: _Json, at: str) -> tuple[int, int]:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if not _is_whole(precision) or not _is_whole(scale):
        _refuse_form(at, "a decimal needs whole numbers as precision and scale.")
    if not 1 <= precision <= DECIMAL_PRECISION_MAX:
        _refuse(
            "CONTRACT_DECIMAL_TOO_WIDE",
            at,
            f"a decimal of {precision} digits.",
            why=f"A numeric has at most {DECIMAL_PRECISION_MAX:,} digits by its type, "
            "and a huge decimal takes seconds to decode.",
            fix=f"Lower the precision to at most {DECIMAL_PRECISION_MAX:,}.",
        )
    if not 0 <= scale <= precision:
        _refuse_form(at, f"the scale {scale} is not within 0 and {precision}.")
    return precision, scale


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _aliases(schema: _Json, at: str) -> tuple[str, ...]:
    aliases = schema.get("aliases", [])
    if not _is_texts(aliases):
        _refuse_form(at, "aliases is not a list of strings.")
    return tuple(aliases)


def _is_texts(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _first_branch(node: SchemaNode) -> str:
    if isinstance(node, Nullable):
        return "null" if node.null_index == 0 else describe(node.item)
    return node.names[0] if isinstance(node, Union) else describe(node)


def _fits_default(default: object, node: SchemaNode) -> bool:
    match node:
        case Nullable():
            fits = (
                default is None
                if node.null_index == 0
                else _fits_default(default, node.item)
            )
        case Union():
            first = node.branches[0]
            fits = default is None if first is None else _fits_default(default, first)
        case Primitive():
            fits = _fits_primitive(default, node)
        case Fixed():
            fits = isinstance(default, str) and len(default) == node.size
        case Enumeration():
            fits = default in node.symbols
        case Sequence():
            fits = isinstance(default, list) and all(
                _fits_default(item, node.item) for item in default
            )
        case Mapping():
            fits = isinstance(default, dict) and all(
                _fits_default(item, node.item) for item in default.values()
            )
        case Record():
            fits = isinstance(default, dict) and all(
                _fits_default(default[field.name], field.node)
                if field.name in default
                else field.has_default
                for field in node.fields
            )
    return fits


def _fits_primitive(default: object, node: Primitive) -> bool:
    match node.kind:
        case "boolean":
            return isinstance(default, bool)
        case "int" | "long":
            lowest, highest = NUMBER_BOUNDS[node.logical or node.kind]
            step = NANOS_PER_MICRO if str(node.logical).endswith("-nanos") else 1
            return (
                _is_whole(default)
                and lowest <= default <= highest
                and default % step == 0
            )
        case "float" | "double":
            return isinstance(default, float) or _is_whole(default)
        case _:
            return isinstance(default, str)
