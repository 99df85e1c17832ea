"""Join lookups to events; each event stays one row, with or without a match."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import (
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
)

from tallyweir.schemas.pipeline.events.enrichment import Enrichment
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.spark_jobs.frame.lookup_rows import VALID_FROM, VALID_UNTIL, key_column
from tallyweir.spark_jobs.frame.time_slices import SLICE, TimeSlices

_DECIMAL_DIGITS = 38


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupCopy:
    """The copy of a lookup with which events are joined.

    Attributes:
        rows: A small table with the columns of ``copied_columns``, whose rows
            ``check_rows`` has accepted. With ranges, it repeats each row for each of
            its time slices.
        slices: The time slices; None without ranges.
    """

    rows: DataFrame
    slices: TimeSlices | None


def enrich(
    events: DataFrame, enrichment: Enrichment, lookup: LookupCopy, *, event_time: str
) -> DataFrame:
    """Add the columns that an enrichment selects.

    Args:
        events: The events to enrich.
        enrichment: The enrichment.
        lookup: The copy of its lookup.
        event_time: The events' column that selects one of several rows by its range.

    Raises:
        ConfigurationError: ``LOOKUP_TYPE``: a key has another type. Spark would compare
            after a conversion that can make two different values equal.
    """
    kinds = {field.name: field.dataType for field in events.schema.fields}
    conditions: list[Column] = []
    for number, (column, lookup_column) in enumerate(enrichment.on.items()):
        found = lookup.rows.schema[key_column(number)].dataType
        if not _are_comparable(kinds[column], found):
            raise ConfigurationError(
                "LOOKUP_TYPE",
                saw=f"The events' {column} is {kinds[column].simpleString()}, "
                f"{lookup_column} of the lookup {enrichment.label} is "
                f"{found.simpleString()}.",
                why="Only values of the same type compare reliably.",
                fix="Cast the lookup's column in a view, and use the view as the "
                "lookup.",
            )
        conditions.append(_are_equal(column, kinds[column], key_column(number), found))
    if lookup.slices is not None:
        at = F.col(event_time)
        begin, end = F.col(VALID_FROM), F.col(VALID_UNTIL)
        conditions += [
            lookup.slices.column(at) == F.col(SLICE),
            begin.isNull() | (begin <= at),
            end.isNull() | (at < end),
        ]
    joined = events.join(
        F.broadcast(lookup.rows), reduce(and_, conditions), "left"
    ).drop(
        *(key_column(number) for number in range(len(enrichment.on))),
        VALID_FROM,
        VALID_UNTIL,
        SLICE,
    )
    return _with_defaults(joined, enrichment.default)


def _are_comparable(event: DataType, lookup: DataType) -> bool:
    """Tell whether different values of the lookup also differ for an event."""
    if isinstance(event, IntegralType):
        return isinstance(lookup, IntegralType | DecimalType | DoubleType)
    if isinstance(event, FloatType | DoubleType):
        return isinstance(lookup, FloatType | DoubleType)
    return isinstance(lookup, type(event))


def _are_equal(column: str, event: DataType, key: str, lookup: DataType) -> Column:
    """Compare an event's key with a lookup's key; their types are comparable.

    A number that does not fit the lookup's type, with the event's decimal places,
    becomes null and equals no key. Without the conversion Spark would raise an
    exception, which ends the batch.
    """
    if not isinstance(lookup, DecimalType):
        return F.col(column) == F.col(key)
    places = event.scale if isinstance(event, DecimalType) else 0
    wide = DecimalType(_DECIMAL_DIGITS, max(places, lookup.scale))
    return F.col(column).try_cast(wide) == F.col(key).try_cast(wide)


def _with_defaults(events: DataFrame, defaults: Mapping[str, object]) -> DataFrame:
    return events.withColumns(
        {
            column: F.coalesce(F.col(column), F.lit(value))
            for column, value in defaults.items()
            if value is not None
        }
    )
