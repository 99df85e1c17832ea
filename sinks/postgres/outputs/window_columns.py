"""The definition of a window table: its windows, and the columns that follow from them.

They are the columns of the table, of its state and of its staging. The kinds of windows
hold all that a task must know to find an event's windows; their durations are
microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from psycopg import sql

from tallyweir.sinks.postgres.outputs.keyed_table import SEQUENCE
from tallyweir.sinks.postgres.outputs.output import Output
from tallyweir.sinks.postgres.outputs.window_aggregates import Partial, WindowAggregate
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.postgres.server.naming import revisions_table

#: The zone in which boundaries are plain multiples.
UTC_ZONE = "UTC"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignedWindows:
    """Windows that depend on the clock alone: fixed windows and sliding windows.

    They begin at multiples of ``every_us`` since 1970-01-01 00:00 in the time zone.
    Each fixed window begins where the one before ends.
    """

    size_us: int
    every_us: int
    time_zone: str = UTC_ZONE


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionWindows:
    """Windows that depend on the events of a group.

    A session ends ``gap_us`` after its last event. An event that comes exactly then
    begins another session.
    """

    gap_us: int


WindowKind = AlignedWindows | SessionWindows


def fixed_windows(size_us: int) -> AlignedWindows:
    """Return windows of one size, each beginning where the one before ends."""
    return AlignedWindows(size_us=size_us, every_us=size_us)


#: The first column of every window table, its state and its staging.
WINDOW_START = Column(name="window_start", postgres_type="timestamp with time zone")
WINDOW_END = Column(name="window_end", postgres_type="timestamp with time zone")

#: Columns added to the former values of a settled row: the revision that replaced them.
REVISION_COLUMNS = (
    Column(name="revised_in_sequence", postgres_type="bigint"),
    Column(name="revised_at", postgres_type="timestamp with time zone"),
)

#: How many events a group holds, whatever its aggregates count.
WINDOW_EVENTS = Partial(
    column=Column(name="tallyweir_events", postgres_type="bigint"), merge="add"
)


#: Since when a group has events that its rows do not show: the time, by the home's
#: clock, when their batch was planned.
WAITING_SINCE = Partial(
    column=Column(
        name="tallyweir_waiting_since", postgres_type="timestamp with time zone"
    ),
    merge="waiting",
)


class LatePolicy(Enum):
    """What happens to an event whose window the watermark has passed."""

    REVISE = "revise"
    SIDE_TABLE = "side_table"
    DROP = "drop"


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowColumns(Output):
    """The definition of a window table, and the columns that follow from it.

    Attributes:
        early_us: How long events of an open window may wait to be shown. With 0, they
            wait for the end of their batch; with None, until the watermark has passed.
        discards: Whether each row has only the events that no former row has.
        metrics: Name of the view with a row for each aggregate, if there is one.
        closed_through_us: Windows that end by then take no more events, whatever the
            allowed lateness: they were final under a former version.
    """

    windows: WindowKind
    by: tuple[Column, ...]
    aggregates: tuple[WindowAggregate, ...]
    allowed_lateness_us: int
    late: LatePolicy
    early_us: int | None = 0
    discards: bool = False
    metrics: str | None = None
    closed_through_us: int | None = None

    @property
    def keys(self) -> tuple[Column, ...]:
        return (WINDOW_START, *self.by)

    @property
    def result_keys(self) -> tuple[Column, ...]:
        """The columns that identify a row of the result table."""
        return (*self.keys, SEQUENCE) if self.discards else self.keys

    @property
    def waits(self) -> bool:
        """Whether its state holds events that no row shows."""
        return self.discards or self.early_us != 0

    @property
    def keeps_late(self) -> bool:
        return self.late is not LatePolicy.DROP

    @property
    def keeps_revisions(self) -> bool:
        """Whether settled rows may change, and their former values are kept."""
        return self.late is LatePolicy.REVISE and not self.discards

    @property
    def has_sessions(self) -> bool:
        """Whether its windows are sessions, which may grow and join."""
        return isinstance(self.windows, SessionWindows)

    @property
    def sketched(self) -> tuple[WindowAggregate, ...]:
        """The aggregates whose partials SQL cannot merge."""
        return tuple(one for one in self.aggregates if one.is_sketched)

    @property
    def partials(self) -> tuple[Partial, ...]:
        return (
            WINDOW_EVENTS,
            *(part for aggregate in self.aggregates for part in aggregate.partials),
            *((WAITING_SINCE,) if self.waits else ()),
        )

    @property
    def state_keys(self) -> tuple[Column, ...]:
        """The columns that come before the partials of a row."""
        return (WINDOW_START, WINDOW_END, *self.by)

    @property
    def staging_columns(self) -> tuple[Column, ...]:
        return (*self.state_keys, *(partial.column for partial in self.partials))

    @property
    def result_columns(self) -> tuple[Column, ...]:
        return (
            WINDOW_START,
            WINDOW_END,
            *self.by,
            *(aggregate.column for aggregate in self.aggregates),
            Column(name="pane", postgres_type="text"),
            Column(name="final", postgres_type="boolean"),
            *((SEQUENCE,) if self.discards else ()),
        )

    @property
    def revision_columns(self) -> tuple[Column, ...]:
        return (*self.result_columns, *REVISION_COLUMNS)

    @property
    def shown_by_state(self) -> list[tuple[Column, sql.Composable]]:
        """The columns of a row that its state gives, each with its expression."""
        keys = (WINDOW_START, WINDOW_END, *self.by)
        return [
            *((column, sql.Identifier(column.name)) for column in keys),
            *((aggregate.column, aggregate.final) for aggregate in self.aggregates),
        ]

    @property
    def pane_columns(self) -> tuple[Column, ...]:
        """The columns of a row of discarding panes, without the one that may change."""
        return tuple(one for one in self.result_columns if one.name != "final")

    @property
    def tables(self) -> dict[str, tuple[Column, ...]]:
        tables = {self.table: self.result_columns}
        if self.keeps_revisions:
            tables[revisions_table(self.table)] = self.revision_columns
        return tables
