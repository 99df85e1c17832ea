"""Debezium's envelope in Avro: the columns of a change, by the schema of its writer.

Kafka Connect's Avro converters write Debezium's types as plain ones and name them in
``connect.name``. A schema is rewritten so that these names become Avro's logical types.
The schema then says the exact type of every column, so a pipeline names no fields. See
https://debezium.io/documentation/reference/stable/connectors/postgresql.html.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any

from tallyweir.schemas.errors import (
    ContractError,
    ReasonCode,
    UnsafeContractError,
    raise_faults,
)
from tallyweir.schemas.formats.avro.safety import (
    DECIMAL_PRECISION_MAX,
    FIELD_NAME,
    parse_schema,
)
from tallyweir.schemas.formats.debezium_envelope import OP, ROW
from tallyweir.schemas.formats.json.json_canonical import canonical_text
from tallyweir.schemas.formats.json.json_fields import JsonField
from tallyweir.schemas.formats.json.json_text import Fault, parse_text, show
from tallyweir.schemas.formats.json.json_times import (
    HIGHEST_MICROS,
    LOWEST_MICROS,
    datetime_of,
)
from tallyweir.schemas.formats.json.json_values import compile_reader
from tallyweir.schemas.schema_tree import (
    Nullable,
    Primitive,
    Record,
    RecordField,
    SchemaNode,
    is_flat,
    item_of,
)

Read = Callable[[Any], object]
"""Makes a column's value of a member that is not null; raises ``Fault``."""

_Json = dict[str, Any]
#: Avro's names of Debezium's types. A Connect timestamp stands for a column without a
#: time zone, although Avro calls it an instant.
_LOGICAL_TYPES = {
    "io.debezium.time.Date": "date",
    "io.debezium.time.Time": "time-millis",
    "io.debezium.time.MicroTime": "time-micros",
    "io.debezium.time.Timestamp": "local-timestamp-millis",
    "io.debezium.time.MicroTimestamp": "local-timestamp-micros",
    "io.debezium.time.NanoTimestamp": "local-timestamp-nanos",
    "io.debezium.data.Uuid": "uuid",
    "org.apache.kafka.connect.data.Timestamp": "local-timestamp-millis",
}
#: What stands for moments of Debezium itself.
_CLOCKS = {"ts_ms": "timestamp-millis", "ts_us": "timestamp-micros"}
_ENVELOPE = {"before", "after", OP, "source"}
#: What else Debezium writes, by how the names of its records end.
_OTHERS = {
    "Heartbeat": "heartbeat",
    "TransactionMetadataValue": "transaction",
    "SchemaChangeValue": "schema change",
}
_OWN_NAMESPACE = "io.debezium.connector."
_VARIABLE_DECIMAL = "io.debezium.data.VariableScaleDecimal"
_INTERVAL = re.compile(
    r"P(-?\d{1,9}Y)?(-?\d{1,9}M)?(-?\d{1,9}D)?"
    r"(T(-?\d{1,9}H)?(-?\d{1,9}M)?(-?\d{1,9}(\.\d{1,6})?S)?)?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeColumn:
    """A column of a change, as one writer writes it.

    Attributes:
        name: The column's name.
        path: The members that lead to it; ``ROW`` stands for the row.
        node: Its type.
        read: Makes its value of what is written; None if that is the value.
    """

    name: str
    path: tuple[str, ...]
    node: SchemaNode
    read: Read | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeForm:
    """What the records of a schema are.

    Attributes:
        members: The fields of the outermost record, in their order.
        columns: The columns of a change; none if the records are no changes.
        other: What they are instead, as ``SkippedRecordError`` says it; else None.
    """

    members: tuple[str, ...]
    columns: tuple[ChangeColumn, ...]
    other: str | None = None


def with_logical_types(schema: object) -> object:
    """Return a schema's JSON in which Debezium's types have Avro's names."""
    if isinstance(schema, list):
        return [with_logical_types(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    written = {
        key: with_logical_types(one)
        if key in {"type", "items", "values", "fields"}
        else one
        for key, one in schema.items()
    }
    logical = _LOGICAL_TYPES.get(str(schema.get("connect.name")))
    return written if logical is None else {**written, "logicalType": logical}


@lru_cache(maxsize=256)
def change_form(text: str) -> ChangeForm:
    """Return what the records of a schema are, by the text of its contract.

    Raises:
        ContractError: ``CONTRACT_NO_CHANGE``: they are nothing that Debezium writes; or
            two columns would have one name, or one that no column can have.
        UnsafeContractError: A payload of it could kill a decoder.
    """
    schema = json.loads(text)
    tree = parse_schema(schema)
    members = tuple(one.name for one in tree.fields)
    namespace, _, name = tree.name.rpartition(".")
    if name in _OTHERS and f"{namespace}.".startswith(_OWN_NAMESPACE):
        return ChangeForm(members=members, columns=(), other=_OTHERS[name])
    nodes = {one.name: item_of(one.node) for one in tree.fields}
    row = nodes.get("after")
    if not nodes.keys() >= _ENVELOPE or not isinstance(row, Record):
        raise ContractError(
            "CONTRACT_NO_CHANGE",
            saw=f"The schema {tree.name} has the fields {', '.join(members)[:200]}.",
            why="With envelope: debezium a schema is that of a change, with before, "
            "after, op and source.",
            fix="Name the schema of such a topic, or remove envelope. A transform that "
            "unwraps changes (ExtractNewRecordState) takes the envelope off.",
        )
    columns = tuple(_columns(nodes, row, _names_of_row(schema)))
    _check_names(columns)
    return ChangeForm(members=members, columns=columns)


def flat_tree(text: str) -> Record:
    """Return the columns of a change as the fields of a record, each of which may lack.

    Raises:
        ContractError: As ``change_form`` does.
    """
    fields = tuple(
        RecordField(name=one.name, node=one.node)
        if one.name == OP
        else RecordField(name=one.name, node=Nullable(item=one.node), has_default=True)
        for one in change_form(text).columns
    )
    return Record(name="Change", fields=fields)


def _columns(
    nodes: Mapping[str, SchemaNode], row: Record, names: Mapping[str, str]
) -> Iterator[ChangeColumn]:
    for field in row.fields:
        yield _column((ROW, field.name), field.node, names.get(field.name, ""))
    for member, node in nodes.items():
        if member == "after":
            continue
        if not isinstance(node, Record):
            yield _column((member,), node)
            continue
        of_row = names if member == "before" else {}
        for field in node.fields:
            path = (member, field.name)
            yield _column(path, field.node, of_row.get(field.name, ""))


def _column(path: tuple[str, ...], node: SchemaNode, name: str = "") -> ChangeColumn:
    read: Read | None = None
    item = item_of(node)
    if path[0] not in {ROW, "before"} and path[-1] in _CLOCKS:
        item = Primitive(kind="long", logical=_CLOCKS[path[-1]])
        read = partial(_read_clock, 1_000 if path[-1] == "ts_ms" else 1)
    elif isinstance(item, Record) and item.name == _VARIABLE_DECIMAL:
        item, read = _numeric(), _read_variable_decimal
    elif item == Primitive(kind="string") and name in _TEXTS:
        item, read = _TEXTS[name]
    elif not is_flat(item):
        # fastavro takes time to import, and not all who know formats decode.
        from tallyweir.schemas.formats.avro.nested_json import compile_json  # noqa: PLC0415

        item, read = Primitive(kind="string", logical="json"), compile_json(item)
    named = path[1:] if path[0] == ROW else path
    return ChangeColumn(name="_".join(named), path=path, node=item, read=read)


def _numeric() -> Primitive:
    """Return the type of numbers that have any number of decimal places each."""
    return Primitive(kind="bytes", logical="decimal", precision=DECIMAL_PRECISION_MAX)


def _names_of_row(schema: _Json) -> dict[str, str]:
    """Return Debezium's type of each column of the row, which Avro does not know."""
    for member in schema["fields"]:
        if member["name"] in {"before", "after"}:
            for branch in _branches(member["type"]):
                if isinstance(branch, dict) and "fields" in branch:
                    return {
                        one["name"]: _connect_name(one["type"])
                        for one in branch["fields"]
                    }
    return {}


def _connect_name(kind: object) -> str:
    found = (one for one in _branches(kind) if isinstance(one, dict))
    return next((str(one.get("connect.name", "")) for one in found), "")


def _branches(kind: object) -> list[object]:
    return kind if isinstance(kind, list) else [kind]


def _check_names(columns: tuple[ChangeColumn, ...]) -> None:
    faults: list[ContractError] = []
    known: dict[str, ChangeColumn] = {}
    for one in columns:
        other = known.setdefault(one.name.casefold(), one)
        if other is not one or not FIELD_NAME.fullmatch(one.name):
            taken = f", as {'.'.join(other.path)} does" if other is not one else ""
            faults.append(
                UnsafeContractError(
                    "CONTRACT_FIELD_NAME",
                    saw=f"The member {'.'.join(one.path)} would become the column "
                    f"{one.name[:80]}{taken}.",
                    why="A column is a letter or underscore and up to 62 letters, "
                    "digits or underscores, and no two have one name.",
                    fix="Rename or leave out the column in the connector, such as by "
                    "column.exclude.list.",
                )
            )
    raise_faults(faults)


def _read_clock(micros: int, value: int) -> dt.datetime:
    if not LOWEST_MICROS <= value * micros <= HIGHEST_MICROS:
        raise Fault(ReasonCode.OUT_OF_RANGE, f"{value}: outside of the years 1 to 9999")
    return datetime_of(value * micros, is_local=False)


def _read_json(text: str) -> str:
    return canonical_text(parse_text(text))


def _read_interval(text: str) -> str:
    if not _INTERVAL.fullmatch(text) or text.endswith(("P", "T")):
        expected = "expected an interval such as P1DT2H3.5S"
        raise Fault(ReasonCode.WRONG_TYPE, f"{expected}, got {show(text)}")
    return text


def _read_variable_decimal(value: Mapping[str, Any]) -> Decimal:
    scale, raw = value["scale"], value["value"]
    unscaled = int.from_bytes(raw[:DECIMAL_PRECISION_MAX], signed=True)
    digits = max(len(raw), len(str(abs(unscaled))), abs(scale))
    if digits > DECIMAL_PRECISION_MAX:
        most = f"a number has at most {DECIMAL_PRECISION_MAX:,} digits here"
        raise Fault(ReasonCode.OUT_OF_RANGE, f"of the scale {scale}: {most}")
    return Decimal(f"{unscaled}E{-scale}")


#: The types that Debezium writes as text.
_TEXTS: Mapping[str, tuple[SchemaNode, Read]] = {
    "io.debezium.time.ZonedTimestamp": (
        Primitive(kind="long", logical="timestamp-micros"),
        compile_reader(JsonField(path=(), column="", type="timestamptz")),
    ),
    "io.debezium.time.Interval": (
        Primitive(kind="string", logical="interval"),
        _read_interval,
    ),
    "io.debezium.data.Json": (Primitive(kind="string", logical="json"), _read_json),
}
