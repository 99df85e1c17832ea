"""The columns that a format's decoder makes of a whole batch of payloads."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tallyweir.schemas.event_contracts import EventContracts
from tallyweir.schemas.schema_tree import (
    Fixed,
    Primitive,
    SchemaNode,
    column_type,
    is_beyond_spark,
    is_flat,
    item_of,
    travels_as,
)

#: The most ids of unknown writers that are told of one batch.
UNKNOWN_IDS_MAX = 5_000

_TYPES = {
    "boolean": pa.bool_(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "uuid": pa.string(),
    "json": pa.string(),
    "bytes": pa.binary(),
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", tz="UTC"),
    "timestamp-micros": pa.timestamp("us", tz="UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
    "timestamp-nanos": pa.timestamp("us", tz="UTC"),
    "local-timestamp-nanos": pa.timestamp("us"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedEvents:
    """What a batch of payloads holds.

    Attributes:
        columns: The wanted fields, by their readers' names. Each column has one row
            per payload: null if the payload is not an event, if its contract lacks
            the field, or if the event holds null.
        is_event: Which payloads are events: those in which ``Format.diagnose`` finds
            no fault.
        canonical: The payloads of the events in a form that equal events share byte
            for byte, however they were written; null where a payload is not an event.
            None if the payloads themselves are that form.
        unnamed: The number of events that have each field which the contract does not
            name, by the field's path; at most some tens of them.
        skipped: What the payloads are that are no events and yet no mistakes, by
            their rows.
        unknown_ids: The schema ids of payloads that no known writer wrote; at most some
            thousands of them.
    """

    columns: Mapping[str, pa.Array]
    is_event: npt.NDArray[np.bool_]
    canonical: pa.Array | None = None
    unnamed: Mapping[str, int] = field(default_factory=dict)
    skipped: Mapping[int, str] = field(default_factory=dict)
    unknown_ids: frozenset[int] = frozenset()


class EventDecoder(Protocol):
    """Decodes the events of one pipeline; it can be pickled."""

    def decode(self, payloads: pa.Array) -> DecodedEvents:
        """Decode a batch, whatever its bytes are.

        Work and memory grow with the number of bytes in the payloads, not with the
        lengths and counts that these claim.

        Args:
            payloads: The payloads as Kafka delivered them: binary or large binary,
                with any offset, with or without nulls. Nulls are not events.

        Raises:
            pa.ArrowInvalid: The texts of one column take over 2 GiB in all.
        """


def is_column(node: SchemaNode) -> bool:
    """Tell whether a decoder returns a field of a type as a column."""
    return is_flat(node) or is_beyond_spark(node)


def arrow_type(node: SchemaNode) -> pa.DataType:
    """Return the column type for a type that ``is_column``.

    Values that travel as text (``travels_as``), enums and UUIDs are texts.
    """
    item = item_of(node)
    if travels_as(column_type(item)) or not isinstance(item, Primitive | Fixed):
        return pa.string()
    if item.logical == "decimal":
        return pa.decimal128(item.precision, item.scale)
    if isinstance(item, Fixed):
        return pa.string() if item.logical == "uuid" else pa.binary()
    return _TYPES[item.logical or item.kind]


def column_types(
    contracts: EventContracts, wanted: Collection[str]
) -> dict[str, pa.DataType]:
    """Return the type of each wanted column; all contracts that have it agree."""
    nodes = {
        field.name: field.node
        for one in contracts.each
        for field in one.contract.tree.fields
    }
    assert all(name in nodes and is_column(nodes[name]) for name in wanted), wanted
    return {name: arrow_type(nodes[name]) for name in wanted}
