"""Decode Avro values in the JVM, by the schema id at the beginning of each value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.avro.functions import from_avro

from schemas.contract import Contract
from schemas.event_contracts import EventContracts
from schemas.formats.avro.wire_format import HEADER_BYTES, frame


def decode_value(contract: Contract, writers: Mapping[int, Contract]) -> Column:
    """Decode the column ``value``; null, or null fields, if that fails.

    Args:
        contract: The contract by which the values are read.
        writers: The contracts that may have written them, by schema id; ``contract``
            is one of them.
    """
    body = F.substring(F.col("value"), HEADER_BYTES + 1, 2**31 - 1)
    written_by = F.substring(F.col("value"), 1, HEADER_BYTES)
    decoded: Column | None = None
    for schema_id, writer in writers.items():
        options = {"mode": "PERMISSIVE"}
        if schema_id != contract.schema_id:
            options["avroSchema"] = contract.text
        event = from_avro(body, writer.text, options)
        is_writer = written_by == F.lit(frame(schema_id, b""))
        decoded = (
            F.when(is_writer, event)
            if decoded is None
            else decoded.when(is_writer, event)
        )
    assert decoded is not None, "the contract itself is always among the writers"
    return decoded


def field_columns(contracts: EventContracts, decoded: Sequence[str]) -> list[Column]:
    """Take each field from the contract that wrote the event.

    Args:
        contracts: The contracts by which the events are read.
        decoded: The column of each contract; all but one are null.
    """
    columns = []
    for field in contracts.fields:
        found = [
            F.col(column).getField(field.name)
            for column, one in zip(decoded, contracts.each, strict=True)
            if field.name in one.names
        ]
        value = F.coalesce(*found) if len(found) > 1 else found[0]
        columns.append(value.alias(field.name))
    return columns


def is_undecoded(contracts: EventContracts, decoded: Sequence[str]) -> Column:
    """Tell whether no contract's column holds an event.

    Then each contract's first required field is null. If a contract has no required
    field, the result is always false.
    """
    lacks = []
    for column, one in zip(decoded, contracts.each, strict=True):
        required = [field for field in one.contract.fields if not field.nullable]
        if not required:
            return F.lit(False)  # noqa: FBT003 - a value
        lacks.append(F.col(column).getField(required[0].name).isNull())
    return reduce(and_, lacks)
