"""Result tables with one row per window of event time and group."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from sinks.postgres.branch_names import HOME
from sinks.postgres.columns import Column
from sinks.postgres.window_aggregates import Partial, WindowAggregate
from sinks.postgres.window_kinds import SessionWindows, WindowKind

#: The first column of every window table, its state and its staging.
WINDOW_START = Column(name="window_start", postgres_type="timestamp with time zone")
WINDOW_END = Column(name="window_end", postgres_type="timestamp with time zone")

#: How many events a group holds, whatever its aggregates count.
WINDOW_EVENTS = Partial(
    column=Column(name="tallyweir_events", postgres_type="bigint"), merge="add"
)


class LatePolicy(Enum):
    """What happens to an event whose window the watermark has passed."""

    REVISE = "revise"
    SIDE_TABLE = "side_table"
    DROP = "drop"


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowTable:
    """One row per window and group; ``branches`` as in ``AppendTable``."""

    table: str
    staging_table: str
    windows: WindowKind
    by: tuple[Column, ...]
    aggregates: tuple[WindowAggregate, ...]
    allowed_lateness_us: int
    late: LatePolicy
    branches: tuple[str, ...] = (HOME,)
    kind: ClassVar[str] = "window"

    @property
    def keys(self) -> tuple[Column, ...]:
        return (WINDOW_START, *self.by)

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
        )

    @property
    def staging_columns(self) -> tuple[Column, ...]:
        return (
            WINDOW_START,
            WINDOW_END,
            *self.by,
            *(partial.column for partial in self.partials),
        )

    @property
    def result_columns(self) -> tuple[Column, ...]:
        return (
            WINDOW_START,
            WINDOW_END,
            *self.by,
            *(aggregate.column for aggregate in self.aggregates),
            Column(name="pane", postgres_type="text"),
            Column(name="final", postgres_type="boolean"),
        )
