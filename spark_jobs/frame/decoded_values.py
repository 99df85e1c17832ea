"""Decode payloads only for what Spark computes and looks up.

Tasks decode events themselves, by ``EventContracts.decoder``. Spark decodes a format
that it can (``Format.spark_expression``). It gets the columns of any other format, and
the fields that are beyond it, from the format's decoder, as tasks do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tallyweir.schemas.event_contracts import EventContracts
from tallyweir.schemas.formats.decoded_columns import column_types
from tallyweir.schemas.schema_tree import is_beyond_spark
from tallyweir.spark_jobs.source.event_columns import KEY, UNDECODED, VALUE


def with_fields(rows: DataFrame, contracts: EventContracts) -> DataFrame:
    """Add the fields of events, and whether a payload is surely no event.

    Args:
        rows: Rows with the columns ``VALUE`` and ``KEY``, and no column with the name
            of a field.
        contracts: The contracts by which the payloads and keys are read.

    Returns:
        The rows with all fields of the contracts, and with the column ``UNDECODED``.
        A field is null, or has any value, if the payload or the key is none.
    """
    if contracts.key is not None:
        of_key = _Payloads(KEY, contracts.key.contracts, contracts.key.prefix)
        rows = _with_fields_of(of_key, rows).drop(UNDECODED)
    return _with_fields_of(_Payloads(VALUE, contracts), rows)


@dataclass(frozen=True, slots=True)
class _Payloads:
    """A column of payloads, their contracts, and what precedes names of fields."""

    column: str
    contracts: EventContracts
    prefix: str = ""


def _with_fields_of(payloads: _Payloads, rows: DataFrame) -> DataFrame:
    contracts = payloads.contracts
    expressions = [
        one.contract.format.spark_expression(one.contract, one.writers, payloads.column)
        for one in contracts.each
    ]
    decoded = {
        f"tallyweir_event_{number}": F.expr(expression)
        for number, expression in enumerate(expressions)
        if expression is not None
    }
    names = [field.name for field in contracts.payload_fields]
    if len(decoded) < len(expressions):
        return _with_fields_by_decoder(payloads, rows, names)
    beyond = {
        field.name
        for one in contracts.each
        for field in one.contract.tree.fields
        if is_beyond_spark(field.node)
    }
    known, is_undecoded = rows, _is_undecoded(contracts, list(decoded))
    if beyond:
        known = _with_fields_by_decoder(payloads, rows, sorted(beyond))
        is_undecoded = F.col(UNDECODED)
    events = known.select("*", *(event.alias(name) for name, event in decoded.items()))
    by_spark = _field_columns(payloads, list(decoded), beyond)
    return events.select(
        *rows.columns,
        *(by_spark.get(name, F.col(f"{payloads.prefix}{name}")) for name in names),
        is_undecoded.alias(UNDECODED),
    )


def _with_fields_by_decoder(
    payloads: _Payloads, rows: DataFrame, names: Sequence[str]
) -> DataFrame:
    types = column_types(payloads.contracts, names)
    prefixed = {f"{payloads.prefix}{name}": kind for name, kind in types.items()}
    added = pa.schema({**prefixed, UNDECODED: pa.bool_()})
    fields = from_arrow_schema(added, prefer_timestamp_ntz=True).fields
    schema = StructType([*rows.schema.fields, *fields])
    return rows.mapInArrow(_AddFields(payloads, names), schema)


@dataclass(frozen=True, slots=True)
class _AddFields:
    """The work of a task; Spark sends it to the executors."""

    payloads: _Payloads
    names: Sequence[str]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoder = self.payloads.contracts.decoder(self.names)
        for batch in batches:
            decoded = decoder.decode(batch.column(self.payloads.column))
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            for name in self.names:
                columns[f"{self.payloads.prefix}{name}"] = decoded.columns[name]
            undecoded = pc.invert(pa.array(decoded.is_event))
            yield pa.RecordBatch.from_pydict({**columns, UNDECODED: undecoded})


def _field_columns(
    payloads: _Payloads, decoded: Sequence[str], beyond: Collection[str]
) -> dict[str, Column]:
    """Take each field that Spark reads from the contract that wrote the event.

    Args:
        payloads: The payloads, with the contracts by which they are read.
        decoded: The column of each contract; all but one are null.
        beyond: The fields that Spark does not read.
    """
    columns = {}
    contracts = payloads.contracts
    for field in contracts.payload_fields:
        if field.name in beyond:
            continue
        found = [
            F.col(column).getField(field.name)
            for column, one in zip(decoded, contracts.each, strict=True)
            if field.name in one.names
        ]
        value = F.coalesce(*found) if len(found) > 1 else found[0]
        columns[field.name] = value.alias(f"{payloads.prefix}{field.name}")
    return columns


def _is_undecoded(contracts: EventContracts, decoded: Sequence[str]) -> Column:
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
