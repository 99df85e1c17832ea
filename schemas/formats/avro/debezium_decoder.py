"""Decode a batch of Debezium's changes in Avro to columns, one change at a time."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tallyweir.schemas.errors import DecodeError, ReasonCode
from tallyweir.schemas.formats.avro.compatibility import find_source
from tallyweir.schemas.formats.avro.debezium_avro import Change, DebeziumAvro
from tallyweir.schemas.formats.avro.debezium_schema import ChangeColumn, change_form
from tallyweir.schemas.formats.debezium_envelope import SkippedRecordError
from tallyweir.schemas.formats.decoded_columns import DecodedEvents, column_types
from tallyweir.schemas.schema_tree import (
    NARROW_DIGITS_MAX,
    Enumeration,
    Fixed,
    Primitive,
    SchemaNode,
    item_of,
)

if TYPE_CHECKING:
    from tallyweir.schemas.event_contracts import EventContract, EventContracts

#: Most ids of unknown writers that are told of one batch.
_UNKNOWN_MAX = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """How the changes of one writer become columns.

    Attributes:
        columns: The writer's columns that are wanted, by the readers' names, and what
            makes of their values what Arrow takes.
        checked: Those that are only read to see that they can be.
    """

    columns: Mapping[str, tuple[ChangeColumn, Callable[[Any], object]]]
    checked: tuple[ChangeColumn, ...]

    def values(self, change: Change) -> dict[str, object]:
        for one in self.checked:
            change.value(one)
        found = {}
        for name, (column, as_arrow) in self.columns.items():
            value = change.value(column)
            found[name] = None if value is None else as_arrow(value)
        return found


class ChangeDecoder:
    """Decodes the changes of one pipeline. Unpickling builds it again."""

    def __init__(self, contracts: EventContracts, wanted: Collection[str]) -> None:
        """Prepare for all writers of all contracts.

        Args:
            contracts: As in ``Format.decoder``, and so is ``wanted``.
            wanted: The fields to return.
        """
        self._contracts = contracts
        self._wanted = tuple(wanted)
        self._types = column_types(contracts, self._wanted)
        form = contracts.format
        assert isinstance(form, DebeziumAvro), "this decodes changes of Debezium"
        self._form = form
        self._plans = {
            schema_id: _plan(one, schema_id, self._wanted)
            for one in contracts.each
            for schema_id in one.writers
        }

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._contracts, self._wanted)

    def decode(self, payloads: pa.Array) -> DecodedEvents:
        """Decode a batch of payloads; see ``EventDecoder.decode``."""
        compared: list[bytes | None] = []
        rows: list[dict[str, object]] = []
        skipped: dict[int, str] = {}
        unknown: set[int] = set()
        for payload in payloads.to_pylist():
            values: dict[str, object] = {}
            found = None
            try:
                change = self._form.read_change(payload, self._contracts.writers)
                values = self._plans[change.writer.schema_id].values(change)
                found = change.compared
            except SkippedRecordError as exc:
                skipped[len(rows)] = exc.what
            except DecodeError as exc:
                if exc.reason_code is ReasonCode.UNKNOWN_SCHEMA:
                    unknown.add(max(0, self._form.schema_id(payload) or 0))
            compared.append(found)
            rows.append(values)
        return DecodedEvents(
            columns={
                name: pa.array([one.get(name) for one in rows], kind)
                for name, kind in self._types.items()
            },
            is_event=np.array([one is not None for one in compared], dtype=np.bool_),
            canonical=pa.array(compared, pa.binary()),
            skipped=skipped,
            unknown_ids=frozenset(sorted(unknown - {0})[:_UNKNOWN_MAX]),
        )


def _plan(one: EventContract, schema_id: int, wanted: Collection[str]) -> _Plan:
    writer = one.writers[schema_id]
    by_name = {column.name: column for column in change_form(writer.text).columns}
    written = {field.name: field for field in writer.tree.fields}
    columns = {}
    for field in one.contract.tree.fields:
        source = find_source(field, written)
        if field.name in wanted and source is not None:
            columns[field.name] = by_name[source.name], _as_arrow(item_of(field.node))
    read = {column.name for column, _ in columns.values()}
    return _Plan(
        columns=columns,
        checked=tuple(
            column
            for column in by_name.values()
            if column.read is not None and column.name not in read
        ),
    )


def _as_arrow(node: SchemaNode) -> Callable[[Any], object]:
    """Return what makes of a writer's value one that the reader's column takes."""
    found: Callable[[Any], object] = _as_it_is
    match node:
        case Enumeration(symbols=symbols, default=default):
            found = lambda value: value if value in symbols else default  # noqa: E731
        case Primitive(kind="float" | "double"):
            found = float
        case Primitive(logical="decimal") | Fixed(logical="decimal"):
            found = _decimal_text if node.precision > NARROW_DIGITS_MAX else _as_it_is
        case Primitive(logical="time-millis" | "time-micros"):
            found = _time_text
        case Primitive(logical="uuid") | Fixed(logical="uuid"):
            found = str
        case Primitive(kind="bytes", logical=None):
            found = _as_bytes
    return found


def _as_it_is(value: object) -> object:
    return value


def _decimal_text(value: Decimal) -> str:
    return f"{value:f}"


def _time_text(value: dt.time) -> str:
    return value.isoformat("microseconds")


def _as_bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value
