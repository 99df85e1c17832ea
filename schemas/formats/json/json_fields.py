"""Read the fields that a pipeline names in JSON documents.

A field is a path and a type, such as ``customer.id: bigint not null``. The type is one
of Postgres's, followed by any of these:

- ``epoch s``, ``epoch ms``, ``epoch us`` or ``epoch ns``, after ``timestamptz`` or
  ``timestamp``: the value is a number of seconds, milliseconds, microseconds or
  nanoseconds since 1970 began in UTC. Without ``epoch`` it is a text of ISO 8601;
- ``epoch days``, after ``date``: the value is a number of days since 1970-01-01;
- ``from text``, after a type of numbers: the value is a text that holds the number;
- ``from base64``, after ``numeric(p,s)``: the value is a text of Base64 that holds the
  unscaled number in two's complement, as Kafka Connect writes decimals;
- ``at 'Europe/Berlin'``, after ``timestamptz``: a text without an offset is local time
  there. A local time that is missing or comes twice is not read;
- ``truncated``, after ``timestamptz`` or ``timestamp``: digits beyond microseconds are
  cut off. Without it, a moment that is no whole number of microseconds is not read;
- ``as NAME``: the column's name. Without it, the names of the path joined by ``_``;
- ``not null``: a document without a value is no event.

In an envelope, a path begins with one of its members, and ``row.NAME`` gives the column
``NAME``; see ``debezium_envelope``.

A path is names joined by dots. A name that has dots itself is put between double
quotation marks: ``"geo.point".lat``.
"""

from __future__ import annotations

import difflib
import json
import re
import zoneinfo
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace

from tallyweir.schemas.errors import ContractError, noting, raise_faults
from tallyweir.schemas.formats.debezium_envelope import MEMBERS, ROW
from tallyweir.schemas.formats.format import Schema
from tallyweir.schemas.schema_tree import (
    Nullable,
    Primitive,
    Record,
    RecordField,
    SchemaNode,
)

#: What becomes of fields that are not named.
UNKNOWN_CHOICES = ("ignore", "refuse", "rest")
REST_COLUMN = "rest"
PRECISION_MAX = 38
#: Postgres cuts longer names.
_NAME_BYTES_MAX = 63
_FIELDS_MAX = 1_000
_SHOWN = 80

_NODES: dict[str, Primitive] = {
    "text": Primitive(kind="string"),
    "boolean": Primitive(kind="boolean"),
    "smallint": Primitive(kind="int", logical="smallint"),
    "integer": Primitive(kind="int"),
    "bigint": Primitive(kind="long"),
    "real": Primitive(kind="float"),
    "double precision": Primitive(kind="double"),
    "numeric": Primitive(kind="string", logical="numeric"),
    "date": Primitive(kind="int", logical="date"),
    "timestamp": Primitive(kind="long", logical="local-timestamp-micros"),
    "timestamptz": Primitive(kind="long", logical="timestamp-micros"),
    "uuid": Primitive(kind="string", logical="uuid"),
    "jsonb": Primitive(kind="string", logical="json"),
    "bytea": Primitive(kind="bytes"),
}
#: A ``numeric`` of so many digits.
_SIZED = "numeric(p,s)"
_TYPES = (*_NODES, _SIZED)
#: Other names of types, and what to write instead.
_SYNONYMS = {
    "bool": "boolean",
    "int2": "smallint",
    "short": "smallint",
    "int": "integer",
    "int4": "integer",
    "int8": "bigint",
    "long": "bigint",
    "float": "double precision",
    "float4": "real",
    "float8": "double precision",
    "double": "double precision",
    "number": "numeric(p,s)",
    "decimal": "numeric(p,s)",
    "string": "text",
    "varchar": "text",
    "char": "text",
    "json": "jsonb",
    "object": "jsonb",
    "array": "jsonb",
    "bytes": "bytea",
    "datetime": "timestamptz",
    "timestamp with time zone": "timestamptz",
    "timestamp without time zone": "timestamp",
}
_TIMES = ("timestamp", "timestamptz")
_NUMBERS = (
    *("smallint", "integer", "bigint", "numeric", _SIZED),
    *("real", "double precision"),
)

_NUMERIC = re.compile(r"numeric ?\( ?([0-9]{1,9}) ?(?:, ?(-?[0-9]{1,9}) ?)?\)")
_MODIFIER = re.compile(
    r" (?:epoch (?P<unit>\w+)|at '(?P<zone>[^']*)'|(?P<truncated>truncated)"
    r"|from (?P<carrier>\w+)|as (?P<column>\S+)"
    r"|(?P<required>not null)|(?P<nullable>null))(?= |$)",
    re.IGNORECASE,
)
_UNITS = ("s", "ms", "us", "ns")
_DAYS = "days"
#: What may carry a number instead of a number of JSON.
FROM_TEXT, FROM_BASE64 = "text", "base64"
_PATH_NAME = re.compile(r'"([^"]+)"|([^".]+)')
_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonField:
    """One field that a pipeline names.

    Attributes:
        path: The names that lead to it, from the top level on.
        column: The column's name.
        type: The type without what follows it, such as ``numeric``.
        precision: Of a ``numeric``, 0 if it has all digits; otherwise 0, as is
            ``scale``.
        scale: Digits behind the point.
        unit: The unit of a time that is a number; empty if it is a text.
        carrier: What holds the number instead of a number: ``text`` or ``base64``.
        zone: The zone of a text without an offset; empty if none is declared.
        is_truncated: Whether digits beyond microseconds are cut off.
        is_required: Whether a document must have a value.
    """

    path: tuple[str, ...]
    column: str
    type: str
    precision: int = 0
    scale: int = 0
    unit: str = ""
    carrier: str = ""
    zone: str = ""
    is_truncated: bool = False
    is_required: bool = False

    @property
    def shown_type(self) -> str:
        """The type as messages call it."""
        sizes = f"({self.precision},{self.scale})" if self.precision else ""
        unit = f" epoch {self.unit}" if self.unit else ""
        carrier = f" from {self.carrier}" if self.carrier else ""
        return f"{self.type}{sizes}{unit}{carrier}"

    @property
    def node(self) -> SchemaNode:
        """The column's type in the tree of the event's fields."""
        item = (
            Primitive(
                kind="bytes",
                logical="decimal",
                precision=self.precision,
                scale=self.scale,
            )
            if self.precision
            else _NODES[self.type]
        )
        return item if self.is_required else Nullable(item=item)


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonFields:
    """All that a pipeline says about its documents."""

    fields: tuple[JsonField, ...]
    unknown: str
    envelope: str = ""


def read_fields(
    fields: Mapping[str, str],
    *,
    unknown: str = "ignore",
    envelope: str = "",
    name: str = "event",
) -> Schema:
    """Read the fields of a pipeline.

    Args:
        fields: The type of each path, in the order of the columns.
        unknown: ``ignore``, ``refuse`` or ``rest``: what becomes of fields that are
            not named. ``rest`` adds a column ``rest`` with all of them.
        envelope: What is around each event; empty if nothing is.
        name: What the record is called.

    Raises:
        ContractError: Something is wrong; the error has all problems.
    """
    found: list[JsonField] = []
    faults: list[ContractError] = []
    with noting(faults):
        _check_counts(fields, unknown)
    for path, kind in fields.items():
        with noting(faults):
            found.append(_read_field(path, kind, envelope))
    if unknown == "rest":
        found.append(JsonField(path=(), column=REST_COLUMN, type="jsonb"))
    faults += _find_clashes(found)
    raise_faults(faults)
    entries = [RecordField(name=one.column, node=one.node) for one in found]
    return Schema(
        text=_write(
            JsonFields(fields=tuple(found), unknown=unknown, envelope=envelope)
        ),
        tree=Record(name=name, fields=tuple(entries)),
    )


def fields_of(text: str) -> JsonFields:
    """Return what a schema's canonical text says; see ``Schema.text``."""
    document = json.loads(text)
    return JsonFields(
        fields=tuple(
            JsonField(**{**one, "path": tuple(one["path"])})
            for one in document["fields"]
        ),
        unknown=document["unknown"],
        envelope=document.get("envelope", ""),
    )


def write_path(path: tuple[str, ...]) -> str:
    """Write a path as a pipeline names it."""
    return ".".join(f'"{name}"' if "." in name else name for name in path)


def _write(fields: JsonFields) -> str:
    written = [asdict(one) for one in fields.fields]
    for one in written:
        # Texts of fields without it, which ledgers hold, stay the same.
        if not one["carrier"]:
            del one["carrier"]
    document = {"fields": written, "unknown": fields.unknown}
    if fields.envelope:
        document["envelope"] = fields.envelope
    return json.dumps(document, separators=(",", ":"), sort_keys=True)


def _problem(saw: str, why: str, fix: str) -> ContractError:
    return ContractError("CONTRACT_MALFORMED", saw=saw, why=why, fix=fix)


def _check_counts(fields: Mapping[str, str], unknown: str) -> None:
    if unknown not in UNKNOWN_CHOICES:
        nearest = difflib.get_close_matches(str(unknown), UNKNOWN_CHOICES, n=1)
        fix = nearest[0] if nearest else f"one of {', '.join(UNKNOWN_CHOICES)}"
        raise _problem(
            f"unknown is {unknown!r:.{_SHOWN}}.",
            "It says what becomes of fields that are not named.",
            f"Write {fix}.",
        )
    if not 1 <= len(fields) <= _FIELDS_MAX:
        raise _problem(
            f"{len(fields):,} fields are named.",
            f"An event has 1 to {_FIELDS_MAX:,} of them.",
            "Name at least one field, such as order_id: text not null."
            if not fields
            else "Take parts of the document as jsonb, or set unknown: rest.",
        )


def _read_field(path: object, kind: object, envelope: str) -> JsonField:
    faults: list[ContractError] = []
    names: tuple[str, ...] = ()
    with noting(faults):
        names = _read_path(path)
        if envelope and names[0] not in MEMBERS:
            raise _problem(
                f"Field {path:.{_SHOWN}} begins with {names[0]:.{_SHOWN}}.",
                f"A change of Debezium has {', '.join(MEMBERS)}.",
                f"Write {ROW}.{path:.{_SHOWN}} for a column of the changed row.",
            )
    is_of_row = bool(envelope) and names[:1] == (ROW,) and len(names) > 1
    shown = names[1:] if is_of_row else names
    read = JsonField(path=names, column="", type="text")
    with noting(faults):
        read = replace(_read_type(str(path), shown, kind), path=names)
    if names:
        with noting(faults):
            _check_column(str(path), read.column or "_".join(shown))
    raise_faults(faults)
    return read


def _read_path(path: object) -> tuple[str, ...]:
    names: list[str] = []
    at = 0
    while isinstance(path, str):
        found = _PATH_NAME.match(path, at)
        if found is None:
            break
        names.append(found[1] or found[2])
        at = found.end()
        if at == len(path):
            return tuple(names)
        if path[at] != ".":
            break
        at += 1
    raise _problem(
        f"A field has the path {path!r:.{_SHOWN}}.",
        "A path is names joined by dots.",
        'Write it as order_id or customer.id, or a name with dots as "geo.point".lat.',
    )


def _read_type(path: str, names: tuple[str, ...], kind: object) -> JsonField:
    if not isinstance(kind, str):
        raise _problem(
            f"Field {path:.{_SHOWN}} has the type {kind!r:.{_SHOWN}}.",
            "A type is a text.",
            f"Write one of {', '.join(_TYPES)}.",
        )
    words = " ".join(kind.split())
    base, modifiers = _split_type(words)
    if base not in _NODES and _NUMERIC.fullmatch(base) is None:
        raise _unknown_type(path, kind, base)
    precision, scale = _read_precision(path, base)
    found = _read_modifiers(path, words, modifiers)
    kept = base if base in _NODES else _SIZED
    _check_modifiers(path, kept, found)
    return JsonField(
        path=names,
        column=found.get("column") or "_".join(names),
        type="numeric" if kept == _SIZED else kept,
        precision=precision,
        scale=scale,
        unit=found.get("unit", "").lower(),
        carrier=found.get("carrier", "").lower(),
        zone=found.get("zone", ""),
        is_truncated="truncated" in found,
        is_required="required" in found,
    )


def _split_type(words: str) -> tuple[str, str]:
    """Split a type's text into the type and what follows it."""
    first = _MODIFIER.search(words)
    at = len(words) if first is None else first.start()
    return words[:at].lower(), words[at:]


def _read_modifiers(path: str, words: str, modifiers: str) -> dict[str, str]:
    found: dict[str, str] = {}
    at = 0
    while at < len(modifiers):
        match = _MODIFIER.match(modifiers, at)
        given = {} if match is None else _given(match)
        if match is None or given.keys() & found.keys():
            raise _problem(
                f"Field {path:.{_SHOWN}} has the type {words!r:.{_SHOWN}}.",
                f"{modifiers[at:].strip()!r:.{_SHOWN}} cannot follow there.",
                "After the type write epoch UNIT, from text, from base64, at 'ZONE', "
                "truncated, as NAME and not null, each at most once.",
            )
        found |= given
        at = match.end()
    return found


def _given(match: re.Match[str]) -> dict[str, str]:
    return {key: one for key, one in match.groupdict().items() if one is not None}


def _check_modifiers(path: str, kind: str, found: Mapping[str, str]) -> None:
    faults = [
        _problem(f"Field {path:.{_SHOWN}}: {saw}.", why, fix)
        for saw, why, fix in _find_misplaced(kind, found)
    ]
    raise_faults(faults)


def _find_misplaced(
    kind: str, found: Mapping[str, str]
) -> Iterator[tuple[str, str, str]]:
    timed = {"epoch": ("unit", (*_TIMES, "date")), "truncated": ("truncated", _TIMES)}
    for word, (key, kinds) in timed.items():
        if key in found and kind not in kinds:
            yield (
                f"{word} follows {kind}",
                f"Only {' and '.join(kinds)} have it.",
                "Change the type, or leave the word out.",
            )
    unit = found.get("unit")
    units = (_DAYS,) if kind == "date" else _UNITS
    if unit is not None and unit.lower() not in units:
        yield (
            f"the unit is {unit!r:.{_SHOWN}}",
            "A number alone does not tell its unit.",
            f"Write epoch {', epoch '.join(units)}.",
        )
    yield from _find_misplaced_carrier(kind, found.get("carrier"))
    zone = found.get("zone")
    if zone is None:
        return
    if kind != "timestamptz" or unit is not None:
        yield (
            f"at '{zone:.{_SHOWN}}' follows {kind}{' epoch' if unit else ''}",
            "A zone is for texts that become a timestamptz.",
            "Leave it out, or write timestamptz at 'ZONE'.",
        )
    if not _is_zone(zone):
        nearest = difflib.get_close_matches(zone, zoneinfo.available_timezones(), n=1)
        yield (
            f"the zone is {zone!r:.{_SHOWN}}",
            "This machine knows no such time zone.",
            f"Write {nearest[0]!r}."
            if nearest
            else "Write one such as 'Europe/Paris'.",
        )


def _find_misplaced_carrier(
    kind: str, carrier: str | None
) -> Iterator[tuple[str, str, str]]:
    kinds = {FROM_TEXT: _NUMBERS, FROM_BASE64: (_SIZED,)}
    if carrier is None or kind in kinds.get(carrier.lower(), ()):
        return
    yield (
        f"from {carrier:.{_SHOWN}} follows {kind}",
        f"A number may come from text, and a {_SIZED} also from base64.",
        "Change the type, or leave the words out.",
    )


def _is_zone(name: str) -> bool:
    try:
        zoneinfo.ZoneInfo(name)
    except (OSError, ValueError, zoneinfo.ZoneInfoNotFoundError):
        return False
    return True


def _unknown_type(path: str, kind: str, base: str) -> ContractError:
    plain = base.partition("(")[0].strip()
    nearest = _SYNONYMS.get(base) or _SYNONYMS.get(plain)
    if nearest is None:
        close = difflib.get_close_matches(plain, [*_TYPES, *_SYNONYMS], n=1)
        nearest = _SYNONYMS.get(close[0], close[0]) if close else None
    return _problem(
        f"Field {path:.{_SHOWN}} has the type {kind!r:.{_SHOWN}}.",
        "That is no type of a field.",
        f"Write {nearest}." if nearest else f"Write one of {', '.join(_TYPES)}.",
    )


def _read_precision(path: str, base: str) -> tuple[int, int]:
    found = _NUMERIC.fullmatch(base)
    if found is None:
        return 0, 0
    precision, scale = int(found[1]), int(found[2] or 0)
    if not 1 <= precision <= PRECISION_MAX or not 0 <= scale <= precision:
        raise _problem(
            f"Field {path:.{_SHOWN}} has the type {base}.",
            f"A numeric has 1 to {PRECISION_MAX} digits, at most all of them behind "
            "the point.",
            "Write numeric(p,s), such as numeric(12,2).",
        )
    return precision, scale


def is_column_name(name: str) -> bool:
    """Tell whether a field may give a column of this name."""
    return _COLUMN.fullmatch(name) is not None and len(name) <= _NAME_BYTES_MAX


def _check_column(path: str, column: str) -> None:
    if not is_column_name(column):
        raise _problem(
            f"Field {path:.{_SHOWN}} gives the column {column!r:.{_SHOWN}}.",
            f"A column's name has up to {_NAME_BYTES_MAX} letters, digits and _, and "
            "does not begin with a digit.",
            "Add as NAME to its type, such as text as user_agent.",
        )


def _find_clashes(fields: list[JsonField]) -> Iterator[ContractError]:
    columns: dict[str, JsonField] = {}
    paths = {one.path: one for one in fields if one.path}
    for one in fields:
        # Spark ignores the case of column names.
        other = columns.setdefault(one.column.casefold(), one)
        if other is not one:
            yield _problem(
                f"{_name(other)} and {_name(one)} both give the column {one.column}.",
                "A table has each column once, regardless of case.",
                "Add as NAME to the type of one of them.",
            )
        for length in range(1, len(one.path)):
            outer = paths.get(one.path[:length])
            if outer is not None:
                yield _problem(
                    f"{_name(outer)} is a field, and {_name(one)} lies inside it.",
                    "A value is one column, or has fields of its own.",
                    "Name the inner fields only, or the outer one as jsonb.",
                )


def _name(field: JsonField) -> str:
    return f"{write_path(field.path):.{_SHOWN}}" if field.path else "unknown: rest"
