"""The changes of Debezium that a topic holds, and the columns of their rows.

The schema part that Kafka Connect's converter writes says each column's type. Without
it, the types are those that hold all values, as for other documents. Pipelines read
changes by ``schemas.formats.debezium_envelope``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tallyweir.schemas.errors import DecodeError
from tallyweir.schemas.formats.debezium_envelope import OP, ROW, change_of
from tallyweir.schemas.formats.json.json_fields import PRECISION_MAX, REST_COLUMN
from tallyweir.schemas.formats.json.json_text import Number, Value
from tallyweir.services.look.document_fields import DocumentFields, LookedField
from tallyweir.services.look.field_profile import InferredType

_PLAIN = {
    "int8": "smallint",
    "int16": "smallint",
    "int32": "integer",
    "int64": "bigint",
    "float": "real",
    "float32": "real",
    "double": "double precision",
    "float64": "double precision",
    "boolean": "boolean",
    "string": "text",
    "bytes": "bytea",
}
_NAMED = {
    "io.debezium.time.Date": "date epoch days",
    "org.apache.kafka.connect.data.Date": "date epoch days",
    "io.debezium.time.Timestamp": "timestamp epoch ms",
    "org.apache.kafka.connect.data.Timestamp": "timestamp epoch ms",
    "io.debezium.time.MicroTimestamp": "timestamp epoch us",
    "io.debezium.time.NanoTimestamp": "timestamp epoch ns",
    "io.debezium.time.ZonedTimestamp": "timestamptz",
    "io.debezium.data.Uuid": "uuid",
}
_DECIMAL = "org.apache.kafka.connect.data.Decimal"


@dataclass(slots=True)
class DebeziumChanges:
    """What is known of the changes after some records.

    Attributes:
        fields: The fields of their rows, and the operation.
        types: The type of each column by the newest schema part.
    """

    fields: DocumentFields = field(default_factory=DocumentFields)
    types: dict[str, str] = field(default_factory=dict)
    _schema: Value = None

    def add(self, document: dict[str, Value]) -> None:
        """Note a document that looks like a change."""
        try:
            change = change_of(document)
        except DecodeError:
            return
        self.fields.add({name: change[name] for name in (ROW, OP) if name in change})
        schema = document.get("schema")
        if isinstance(schema, dict) and schema != self._schema:
            self._schema = schema
            self.types = types_of(schema)

    def list_fields(self) -> list[LookedField]:
        """List the fields of a pipeline that reads the changes."""
        taken = {OP, REST_COLUMN}
        found = []
        for one in self.fields.list_fields():
            column, kind = one.column.removeprefix(f"{ROW}_"), one.type
            if one.path[0] == ROW:
                # A column of the row has its own name, unless another has it.
                column = one.column if column.casefold() in taken else column
                if len(one.path) == 2 and one.path[1] in self.types:  # noqa: PLR2004
                    kind = InferredType(sql=self.types[one.path[1]])
            taken.add(column.casefold())
            found.append(replace(one, column=column, type=kind))
        return found


def types_of(schema: Mapping[str, Value]) -> dict[str, str]:
    """Return the columns' types by the schema part of a change."""
    members = _by_name(schema)
    row = members.get("after") or members.get("before") or {}
    return {name: _type_of(one) for name, one in _by_name(row).items()}


def _by_name(schema: Mapping[str, Value]) -> dict[str, Mapping[str, Value]]:
    fields = schema.get("fields")
    return {
        str(one["field"]): one
        for one in (fields if isinstance(fields, list) else [])
        if isinstance(one, dict) and isinstance(one.get("field"), str)
    }


def _type_of(column: Mapping[str, Value]) -> str:
    name, kind = column.get("name"), str(column.get("type"))
    if name == _DECIMAL:
        given = column.get("parameters")
        parameters = given if isinstance(given, dict) else {}
        precision = _number(parameters.get("connect.decimal.precision"), PRECISION_MAX)
        scale = _number(parameters.get("scale"), 0)
        if 0 <= scale <= precision <= PRECISION_MAX:
            return f"numeric({precision},{scale}) from base64"
        return "text"
    return _NAMED.get(str(name)) or _PLAIN.get(kind, "jsonb")


def _number(value: Value, default: int) -> int:
    text = value.token if isinstance(value, Number) else value
    return int(text) if isinstance(text, str) and text.isdigit() else default
