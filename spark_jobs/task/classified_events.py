"""A task's events and the fate of each, as the ledger counts it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tallyweir.sinks.seen_ids.ordering import BoolArray, I64Array
from tallyweir.spark_jobs.source import event_columns as named

_HALF_BITS = 32
_LOWER_HALF = (1 << _HALF_BITS) - 1


class EventClass(IntEnum):
    """The fate of an event; the ledger has a column of the same name for each."""

    COMMITTED = 0
    DEAD = 1
    EXPIRED = 2
    DUPLICATE = 3
    LATE = 4
    FILTERED = 5


@dataclass(slots=True, kw_only=True)
class ClassifiedEvents:
    """A task's events and their fates so far; at first, all are committed.

    Attributes:
        table: The event frame's columns, one chunk each.
        classes: ``EventClass`` of each row.
        reasons: Reason code and detail of each dead row.
        event_time_us: Microseconds since 1970; undefined for rows without a time.
        corrections: Rows that correct earlier events of their IDs. A committed one
            replaces what the earlier event brought to the tables. A filtered one takes
            it away and adds nothing.
        fingerprints: Hashes of the IDs, for rows that have one; None until computed.
        erased: Rows of erased events. Nothing of them may be kept; they are filtered.
        read_ids: IDs that could still be read from rows that are not events.
    """

    table: pa.Table
    classes: npt.NDArray[np.uint8]
    event_time_us: I64Array
    reasons: dict[int, tuple[str, str]] = field(default_factory=dict)
    corrections: I64Array = field(default_factory=lambda: np.empty(0, np.int64))
    fingerprints: npt.NDArray[np.uint64] | None = None
    erased: I64Array = field(default_factory=lambda: np.empty(0, np.int64))
    read_ids: dict[int, object] = field(default_factory=dict)

    @classmethod
    def undecided(cls, table: pa.Table) -> ClassifiedEvents:
        """Return events whose fates are all undecided.

        Args:
            table: The event frame's columns, one chunk each.
        """
        times = table.column(named.EVENT_TIME).chunk(0)
        return cls(
            table=table,
            classes=np.zeros(table.num_rows, dtype=np.uint8),
            event_time_us=np.asarray(times.cast(pa.int64()).fill_null(0)),
        )

    def is_class(self, kind: EventClass) -> BoolArray:
        """Tell which rows are of a class."""
        chosen: BoolArray = self.classes == kind
        return chosen

    def count(self, kind: EventClass) -> int:
        """Count the rows of a class."""
        return int(np.count_nonzero(self.is_class(kind)))

    def is_erased(self) -> BoolArray:
        """Tell which rows are of erased events, of which nothing may be kept."""
        chosen = np.zeros(len(self.classes), dtype=np.bool_)
        chosen[self.erased] = True
        return chosen

    def is_wanted_by(self, number: int) -> BoolArray:
        """Tell which rows satisfy an output's condition; all if it has none."""
        column = named.wanted_column(number)
        if column not in self.table.column_names:
            return np.ones(len(self.classes), dtype=np.bool_)
        return np.asarray(self.array(column))

    def checksum(self, chosen: BoolArray) -> int:
        """Add up the offsets of some rows, so that an audit can compare them."""
        offsets = np.asarray(self.array(named.OFFSET))[chosen]
        # A task has too few rows for a half's sum to wrap; Python's integers never do.
        upper, lower = offsets >> _HALF_BITS, offsets & _LOWER_HALF
        return (int(upper.sum()) << _HALF_BITS) + int(lower.sum())

    def mark_dead(self, row: int, reason: str, detail: str) -> None:
        """Make a row a dead letter, unless it is one already."""
        if row not in self.reasons:
            self.reasons[row] = (reason, detail)
            self.classes[row] = EventClass.DEAD

    def array(self, name: str) -> pa.Array:
        """Return a column as one array."""
        return self.table.column(name).chunk(0)
