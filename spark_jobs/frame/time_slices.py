"""Cuts time into slices, so that a hash join finds the range that an instant lies in.

Spark joins by equality fast, and by ranges only by trying each range of a key. So a row
stands in every slice of time that its range touches, and an event looks into the one
slice that its time is in: the binned range join, as Databricks calls it.

There are as many slices as a key has ranges on average. Ranges of one key do not
overlap, so a border between slices is inside of one of them at most, and the rows at
most double.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

#: The column of a copy that holds the slice's number.
SLICE = "tallyweir_slice"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSlices:
    """Slices of equal length; what is before the first or after the last is in them.

    Attributes:
        begin_us: Where the first begins.
        length_us: Of each, at least 1.
        count: How many, at least 1.
    """

    begin_us: int
    length_us: int
    count: int

    @classmethod
    def between(cls, begin_us: int, until_us: int, *, count: int) -> TimeSlices:
        """Cut a span of time into so many slices at most."""
        length_us = max(1, -(-(until_us - begin_us) // count))
        return cls(begin_us=begin_us, length_us=length_us, count=count)

    def number(self, instants_us: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the slice of each instant."""
        passed = (instants_us - self.begin_us) // self.length_us
        return np.clip(passed, 0, self.count - 1)

    def column(self, instant: Column) -> Column:
        """Return the same of a timestamp in Spark; null for null."""
        # An instant that no calendar has may be further away than numbers reach; its
        # event is dead, in whichever slice it looks.
        passed = F.try_subtract(F.unix_micros(instant), F.lit(self.begin_us))
        whole = F.call_function("div", passed, F.lit(self.length_us))
        # The functions pass over a null, which must stay one.
        return F.when(
            instant.isNotNull(),
            F.greatest(F.lit(0), F.least(whole, F.lit(self.count - 1))),
        )


def cut_into_slices(
    rows: pa.Table, begin: str, until: str, *, keys: int
) -> tuple[pa.Table, TimeSlices]:
    """Repeat each row for every slice that its range touches, with the slice's number.

    Args:
        rows: A table whose ranges include their beginning and exclude their end.
            Those of one key do not overlap. An empty range is in no slice.
        begin: The column of beginnings, instants in microseconds; null is since ever.
        until: The same of ends; null is for ever.
        keys: How many keys the ranges are of.
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
    """Return instants, and where there is none."""
    instants = pc.fill_null(column.cast(pa.int64()), 0).to_numpy()
    return instants, pc.is_null(column).to_numpy()
