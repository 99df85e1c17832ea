"""Read the columns that a JSON Schema declares, as the fields that a pipeline names.

The columns are the properties of the outermost object. A property is read if the schema
says which one type its values have: by ``type``, or else by the values of ``enum`` or
``const``, or else by alternatives (``oneOf``, ``anyOf``, ``allOf``) of one type. Null
may be one more type. What else a schema demands of values, such as ``pattern`` or
``maximum``, is not looked at.

============================  ======================================================
``string``                    ``text``; by its ``format``: ``date-time`` is
                              ``timestamptz``, ``date`` is ``date``, ``uuid`` is
                              ``uuid``
``integer``, ``number``       ``bigint``, ``numeric``
``boolean``                   ``boolean``
``object``, ``array``         ``jsonb``
============================  ======================================================

A property that is required, and never null, is ``not null``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urljoin

from tallyweir.schemas.errors import ContractError, DecodeError, noting, raise_faults
from tallyweir.schemas.formats.json.json_canonical import digits_of
from tallyweir.schemas.formats.json.json_fields import is_column_name, write_path
from tallyweir.schemas.formats.json.json_text import (
    DEPTH_MAX,
    Number,
    Value,
    parse_document,
    show,
)

_TYPES = {
    "string": "text",
    "integer": "bigint",
    "number": "numeric",
    "boolean": "boolean",
    "object": "jsonb",
    "array": "jsonb",
}
_FORMATS = {"date-time": "timestamptz", "date": "date", "uuid": "uuid"}
_NULL = "null"
#: What holds alternatives of a value; in ``allOf``, a value is all of them.
_CHOICES = ("oneOf", "anyOf", "allOf")
#: What a reference may not have beside it, because drafts of the standard differ on it.
_DECISIVE = ("type", "enum", "const", "format", *_CHOICES)
#: Where properties of an object may be that are not beside the others.
_ELSEWHERE = (*_CHOICES, "if", "then", "else", "not", "dependentSchemas")
_ESCAPES = (("~1", "/"), ("~0", "~"))


@dataclass(frozen=True, slots=True)
class _Node:
    """A schema in a schema: what it says, and the document in which it stands."""

    value: Value
    document: str

    def inner(self, value: Value) -> _Node:
        return _Node(value, self.document)


_Told = tuple[frozenset[str], bool]
"""The types that values may have, and whether they may be null."""


class _UnreadableError(Exception):
    """A property that does not say which one type it has; with what was seen."""


def read_json_schema(
    text: bytes, references: Iterable[tuple[str, str]] = ()
) -> dict[str, str]:
    """Return the path and the type of each column, as ``read_fields`` takes them.

    Args:
        text: The schema.
        references: Name and text of each schema that it refers to.

    Raises:
        ContractError: It is no schema of an object, or some properties cannot become
            columns; the error lists them all.
    """
    documents = {"": _parse(text, "The schema")}
    for name, referred in references:
        documents[name] = _parse(referred.encode(), f"The schema {name:.80}")
    return _Reader(documents).columns()


def _parse(text: bytes, what: str) -> dict[str, Value]:
    try:
        return parse_document(text)
    except DecodeError as exc:
        raise ContractError(
            "CONTRACT_MALFORMED",
            saw=f"{what} is not a JSON object ({exc}).",
            why="The columns of documents are those of their JSON Schema.",
            fix="Correct it, or name the columns in source.fields.",
        ) from exc


class _Reader:
    """Reads the schemas of one contract.

    Args:
        documents: The schema under the empty name, and those that it refers to.
    """

    def __init__(self, documents: Mapping[str, dict[str, Value]]) -> None:
        self._documents = documents
        #: What ``_kinds`` has found, by the identity of schemas.
        self._told: dict[int, _Told] = {}
        self._open: set[int] = set()

    def columns(self) -> dict[str, str]:
        faults: list[ContractError] = []
        try:
            root = self._resolved(_Node(self._documents[""], ""))
            properties, required = self._members(root)
        except _UnreadableError as exc:
            raise _problem("The schema", str(exc)) from None
        columns: dict[str, str] = {}
        for name, value in properties.items():
            with noting(faults):
                kind = self._column(name, root.inner(value), required)
                columns[write_path((name,))] = kind
        faults += self._find_elsewhere(root)
        raise_faults(faults)
        return columns

    def _members(self, root: _Node) -> tuple[dict[str, Value], list[Value]]:
        """Return the properties of an object, and the names of those it must have."""
        assert isinstance(root.value, dict), "what is resolved is an object"
        kind = root.value.get("type", "object")
        if kind != "object":
            raise _UnreadableError(f"is of type {show(kind)}, not an object")
        properties = root.value.get("properties")
        if not isinstance(properties, dict) or not properties:
            raise _UnreadableError("has no properties")
        required = root.value.get("required")
        return properties, required if isinstance(required, list) else []

    def _column(self, name: str, node: _Node, required: list[Value]) -> str:
        if not is_column_name(name) or '"' in name:
            raise _problem(
                f"The property {name!r:.80}",
                "cannot be the name of a column",
                "with as NAME behind its type",
            )
        try:
            kinds, is_nullable = self._kinds(node)
            kind = _only(kinds)
        except _UnreadableError as exc:
            raise _problem(f"The property {name}", str(exc)) from None
        is_required = name in required and not is_nullable
        return f"{kind} not null" if is_required else kind

    def _kinds(self, given: _Node) -> _Told:
        node = self._resolved(given)
        assert isinstance(node.value, dict), "what is resolved is an object"
        key = id(node.value)
        if key in self._told:
            return self._told[key]
        if key in self._open or len(self._open) >= DEPTH_MAX:
            raise _UnreadableError("refers to itself, or leads too deep")
        self._open.add(key)
        try:
            found = self._told[key] = self._find_kinds(node, node.value)
        finally:
            self._open.remove(key)
        return found

    def _find_kinds(self, node: _Node, schema: Mapping[str, Value]) -> _Told:
        if "type" in schema:
            return _declared(schema)
        if "enum" in schema or "const" in schema:
            values = schema.get("enum", [schema.get("const")])
            if not isinstance(values, list):
                raise _UnreadableError("has an enum that is no list")
            found = {_kind_of(one) for one in values}
            return frozenset(found - {_NULL}), _NULL in found
        choices = [one for one in _CHOICES if one in schema]
        if not choices:
            raise _UnreadableError("does not say its type")
        branches = schema[choices[0]]
        if len(choices) > 1 or not isinstance(branches, list) or not branches:
            raise _UnreadableError(f"does not say its type by {choices[0]} alone")
        told = [self._kinds(node.inner(one)) for one in branches]
        kinds = frozenset[str]().union(*(one for one, _ in told))
        may_be_null = any if choices[0] != "allOf" else all
        return kinds, may_be_null(is_nullable for _, is_nullable in told)

    def _find_elsewhere(self, root: _Node) -> Iterator[ContractError]:
        """Find parts of the outermost object that may have more properties."""
        assert isinstance(root.value, dict), "what is resolved is an object"
        for key in _ELSEWHERE:
            part = root.value.get(key)
            parts = part if isinstance(part, list) else [part]
            if any(
                isinstance(one, dict) and ("$ref" in one or "properties" in one)
                for one in parts
            ):
                yield _problem("The schema", f"has more properties in {key}")

    def _resolved(self, node: _Node) -> _Node:
        """Follow references to a schema that is none.

        Raises:
            _UnreadableError: There is none.
        """
        seen: set[int] = set()
        while isinstance(node.value, dict) and "$ref" in node.value:
            beside = [one for one in _DECISIVE if one in node.value]
            if beside:
                raise _UnreadableError(f"has {beside[0]} beside $ref")
            if id(node.value) in seen:
                raise _UnreadableError("refers to itself")
            seen.add(id(node.value))
            node = self._referred(node, node.value["$ref"])
        if not isinstance(node.value, dict):
            raise _UnreadableError(f"is {show(node.value)}, which says no type")
        return node

    def _referred(self, node: _Node, reference: Value) -> _Node:
        if not isinstance(reference, str):
            raise _UnreadableError("has a $ref that is no text")
        place, _, fragment = reference.partition("#")
        name = self._named(node.document, place) if place else node.document
        pointer = unquote(fragment)
        is_pointer = not pointer or pointer.startswith("/")
        if name is None or not is_pointer:
            raise _UnreadableError(
                f"refers to {reference!r:.120}, which is not in the schema"
            )
        found: Value = self._documents[name]
        for step in pointer.split("/")[1:]:
            for escaped, plain in _ESCAPES:
                step = step.replace(escaped, plain)  # noqa: PLW2901 - in turn
            found = _step(found, step, reference)
        return _Node(found, name)

    def _named(self, document: str, place: str) -> str | None:
        """Return the document that a reference names; None if there is none."""
        if place in self._documents:
            return place
        base = self._documents[document].get("$id")
        wanted = urljoin(base if isinstance(base, str) else "", place)
        for name, one in self._documents.items():
            known = one.get("$id")
            is_known = isinstance(known, str) and known.rstrip("#") == wanted
            if is_known or name == wanted:
                return name
        return None


def _step(found: Value, step: str, reference: str) -> Value:
    if isinstance(found, list) and step.isdecimal() and int(step) < len(found):
        return found[int(step)]
    if isinstance(found, dict) and step in found:
        return found[step]
    raise _UnreadableError(f"refers to {reference!r:.120}, which is not in the schema")


def _declared(schema: Mapping[str, Value]) -> _Told:
    """Return the types that ``type`` names."""
    given = schema["type"]
    names = given if isinstance(given, list) else [given]
    kinds: set[str] = set()
    for name in names:
        if name == _NULL:
            continue
        if not isinstance(name, str) or name not in _TYPES:
            raise _UnreadableError(f"has the type {show(name)}")
        form = schema.get("format")
        is_formed = name == "string" and isinstance(form, str)
        kinds.add(_FORMATS.get(str(form), "text") if is_formed else _TYPES[name])
    return frozenset(kinds), _NULL in names


def _kind_of(value: Value) -> str:
    """Return the type of one value."""
    match value:
        case None:
            return _NULL
        case bool():
            return "boolean"
        case str():
            return "text"
        case Number():
            is_whole = digits_of(value.token).exponent >= 0
            return "bigint" if is_whole else "numeric"
        case _:
            return "jsonb"


def _only(kinds: frozenset[str]) -> str:
    if kinds == {"bigint", "numeric"}:
        # Each whole number is a number.
        return "numeric"
    if len(kinds) > 1:
        raise _UnreadableError(
            f"has values of several types: {', '.join(sorted(kinds))}"
        )
    if not kinds:
        raise _UnreadableError("has no value but null")
    (kind,) = kinds
    return kind


def _problem(
    what: str, saw: str, fix: str = "with a type such as jsonb"
) -> ContractError:
    return ContractError(
        "CONTRACT_TYPE_UNSUPPORTED",
        saw=f"{what} {saw}.",
        why="A column has one name and one type, which are not guessed.",
        fix=f"Name the columns in source.fields, this one {fix}.",
    )
