"""Join lookups to events; each event stays one row, with or without a match.

If rows of a lookup have ranges of time, a hash join must find the range that contains
an instant. Spark is fast at joins by equality, but for a join by ranges it tries each
range of a key. So the lookup repeats a row in every slice of time that its range
touches, and an event searches only the slice of its time. Databricks calls this a
binned range join.

There are as many slices as a key has ranges on average. Ranges of one key do not
overlap, so a border between slices lies in at most one of them. So the number of rows
at most doubles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import and_

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import DataType, DecimalType, DoubleType, FloatType, IntegralType

from tallyweir.schemas.pipeline.events.enrichment import Enrichment
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.spark_jobs.frame.lookup_rows import VALID_FROM, VALID_UNTIL, key_column

#: The column of a copy that holds the slice's number.
SLICE = "tallyweir_slice"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSlices:
    """Slices of equal length; the first and the last also hold all instants outside.

    Attributes:
        begin_us: The start of the first slice.
        length_us: The length of each slice, at least 1.
        count: The number of slices, at least 1.
    """

    begin_us: int
    length_us: int
    count: int

    @classmethod
    def between(cls, begin_us: int, until_us: int, *, count: int) -> TimeSlices:
        """Cut a span of time into at most ``count`` slices."""
        length_us = max(1, -(-(until_us - begin_us) // count))
        return cls(begin_us=begin_us, length_us=length_us, count=count)

    def number(self, instants_us: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the slice of each instant."""
        passed = (instants_us - self.begin_us) // self.length_us
        return np.clip(passed, 0, self.count - 1)

    def column(self, instant: Column) -> Column:
        """Return the slice of a timestamp in Spark; null for null."""
        # The distance to an instant outside of the calendar may overflow. Its event is
        # dead in any case, whichever slice it searches.
        passed = F.try_subtract(F.unix_micros(instant), F.lit(self.begin_us))
        whole = F.call_function("div", passed, F.lit(self.length_us))
        # These functions skip a null, but a null must stay null.
        return F.when(
            instant.isNotNull(),
            F.greatest(F.lit(0), F.least(whole, F.lit(self.count - 1))),
        )


def cut_into_slices(
    rows: pa.Table, begin: str, until: str, *, keys: int
) -> tuple[pa.Table, TimeSlices]:
    """Repeat each row for every slice that its range touches, with the slice's number.

    Args:
        rows: A table whose ranges include their start and exclude their end. The ranges
            of one key do not overlap. An empty range is in no slice.
        begin: The column of starts, instants in microseconds; null means no start.
        until: The column of ends, in the same form; null means no end.
        keys: The number of keys that have the ranges.
    """
    begins, is_since_ever = _microseconds(rows.column(begin))
    ends, is_for_ever = _microseconds(rows.column(until))
    borders = np.concatenate([begins[~is_since_ever], ends[~is_for_ever]])
    slices = TimeSlices.between(
        int(borders.min()) if borders.size else 0,
        int(borders.max()) if borders.size else 0,
        count=max(1, rows.num_rows // max(1, keys)),
    )
    first = np.where(is_since_ever, 0, slices.number(begins))
    last = np.where(is_for_ever, slices.count - 1, slices.number(ends - 1))
    is_empty = ~is_since_ever & ~is_for_ever & (begins >= ends)
    touched = np.where(is_empty, 0, last - first + 1)
    row = np.repeat(np.arange(rows.num_rows), touched)
    before = np.cumsum(touched) - touched
    number = first[row] + np.arange(row.size) - before[row]
    return rows.take(pa.array(row)).append_column(SLICE, pa.array(number)), slices


def _microseconds(
    column: pa.ChunkedArray,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return the instants, and which of them are null."""
    instants = pc.fill_null(column.cast(pa.int64()), 0).to_numpy()
    return instants, pc.is_null(column).to_numpy()


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
    # The name of a header may have a dot.
    value = F.col(f"`{column}`")
    if not isinstance(lookup, DecimalType):
        return value == F.col(key)
    places = event.scale if isinstance(event, DecimalType) else 0
    wide = DecimalType(_DECIMAL_DIGITS, max(places, lookup.scale))
    return value.try_cast(wide) == F.col(key).try_cast(wide)


def _with_defaults(events: DataFrame, defaults: Mapping[str, object]) -> DataFrame:
    return events.withColumns(
        {
            column: F.coalesce(F.col(column), F.lit(value))
            for column, value in defaults.items()
            if value is not None
        }
    )
