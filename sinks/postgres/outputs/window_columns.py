"""The columns of a window table, of its state and of its staging."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from psycopg import sql

from sinks.postgres.outputs.keyed_table import SEQUENCE
from sinks.postgres.outputs.output import Output
from sinks.postgres.outputs.window_aggregates import Partial, WindowAggregate
from sinks.postgres.outputs.window_kinds import SessionWindows, WindowKind
from sinks.postgres.server.columns import Column
from sinks.postgres.server.naming import revisions_table

#: The first column of every window table, its state and its staging.
WINDOW_START = Column(name="window_start", postgres_type="timestamp with time zone")
WINDOW_END = Column(name="window_end", postgres_type="timestamp with time zone")

#: Of a settled row that has changed, its former values: since when they are former.
REVISION_COLUMNS = (
    Column(name="revised_in_sequence", postgres_type="bigint"),
    Column(name="revised_at", postgres_type="timestamp with time zone"),
)

#: How many events a group holds, whatever its aggregates count.
WINDOW_EVENTS = Partial(
    column=Column(name="tallyweir_events", postgres_type="bigint"), merge="add"
)


#: Since when a group has events that its rows do not show, by the home's clock at the
#: planning of batches.
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
    """What a window table is made of.

    Attributes:
        early_us: How long events may wait, in an open window, to be shown: 0 for
            until the end of their batch, None for until the watermark has passed.
        discards: Whether each row has only the events that no former one has.
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
        """What tells the rows of the result table apart."""
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
        """Whether rows change that were settled."""
        return self.late is LatePolicy.REVISE and not self.discards

    @property
    def has_sessions(self) -> bool:
        """Whether its windows grow and swallow each other."""
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
        """What stands before the partials of a row."""
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
        """The columns of a row that its state gives, each with the expression of it."""
        keys = (WINDOW_START, WINDOW_END, *self.by)
        return [
            *((column, sql.Identifier(column.name)) for column in keys),
            *((aggregate.column, aggregate.final) for aggregate in self.aggregates),
        ]

    @property
    def pane_columns(self) -> tuple[Column, ...]:
        """The columns of a row that discards, without the one that still changes."""
        return tuple(one for one in self.result_columns if one.name != "final")

    @property
    def tables(self) -> dict[str, tuple[Column, ...]]:
        tables = {self.table: self.result_columns}
        if self.keeps_revisions:
            tables[revisions_table(self.table)] = self.revision_columns
        return tables
