"""What a pipeline writes: append and window tables, with their partials, and messages.

A window's aggregates are kept as mergeable *partials*. A task computes the partials
of its events, publishing merges them into the state table, and the result columns
are computed from the merged partials.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from psycopg import sql

from sinks.postgres.columns import POSITION_COLUMNS, Column, type_name

#: The home database, and the home's own publish transaction, as outputs name them.
HOME = "home"


class AggregateFunction(Enum):
    """Aggregates whose partials merge exactly."""

    COUNT = "count"
    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"


class LatePolicy(Enum):
    """What happens to an event whose window the watermark has passed."""

    REVISE = "revise"
    SIDE_TABLE = "side_table"
    DROP = "drop"


def branch_name(database: str, number: int) -> str:
    """Name a publish transaction beside the home's: ``billing.0``."""
    return f"{database}.{number}"


def database_of(branch: str) -> str:
    """Return the database that a branch publishes in."""
    return branch.rpartition(".")[0] or HOME


def staged_for(staging_table: str, branch: str) -> str:
    """Name the staging table of the part of an output that one branch publishes.

    It is in the branch's database, and votes count its rows under this name.
    """
    return staging_table if branch == HOME else f"{staging_table}@{branch}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendTable:
    """One row per event.

    Attributes:
        table: Where the rows go, in the database of each branch.
        staging_table: Where tasks put them first; see ``staged_for``.
        event_columns: What the events give; their position is added.
        branches: Who publishes them. With several, each row belongs to one.
    """

    table: str
    staging_table: str
    event_columns: tuple[Column, ...]
    branches: tuple[str, ...] = (HOME,)
    #: As the ledger says it.
    kind: ClassVar[str] = "append"

    @property
    def columns(self) -> tuple[Column, ...]:
        return (*self.event_columns, *POSITION_COLUMNS)

    @property
    def staging_columns(self) -> tuple[Column, ...]:
        return self.columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Partial:
    """One mergeable part of an aggregate: a count, a sum, a minimum or a maximum."""

    column: Column
    merge: str

    @property
    def combined(self) -> sql.Composable:
        """The partials of several tasks, combined within one group."""
        name = sql.Identifier(self.column.name)
        function = {"add": "sum", "least": "min", "greatest": "max"}[self.merge]
        return sql.SQL("{}({})::{}").format(
            sql.SQL(function), name, type_name(self.column.postgres_type)
        )

    @property
    def merged(self) -> sql.Composable:
        """The stored partial merged with the one that arrives."""
        name = sql.Identifier(self.column.name)
        if self.merge == "add":
            return sql.SQL("{n} = state.{n} + EXCLUDED.{n}").format(n=name)
        function = sql.SQL("LEAST" if self.merge == "least" else "GREATEST")
        return sql.SQL("{n} = {f}(state.{n}, EXCLUDED.{n})").format(n=name, f=function)

    @property
    def definition(self) -> sql.Composable:
        if self.merge != "add" and self.column.postgres_type == "text":
            # Tasks compare text by bytes; the database must not use a language's
            # order, or the minimum would depend on how events fell into batches.
            return sql.SQL('{} COLLATE "C"').format(self.column.definition)
        return self.column.definition


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowAggregate:
    """A result column of a window and the partials behind it."""

    column: Column
    function: AggregateFunction
    #: Position in the output; partials are named by it.
    number: int
    #: Type of the sum, the minimum or the maximum.
    partial_type: str

    @property
    def partials(self) -> tuple[Partial, ...]:
        match self.function:
            case AggregateFunction.COUNT:
                return (self._partial("count", "bigint", "add"),)
            case AggregateFunction.SUM | AggregateFunction.AVG:
                return (
                    self._partial("sum", self.partial_type, "add"),
                    self._partial("count", "bigint", "add"),
                )
            case AggregateFunction.MIN:
                return (self._partial("min", self.partial_type, "least"),)
            case AggregateFunction.MAX:
                return (self._partial("max", self.partial_type, "greatest"),)

    @property
    def final(self) -> sql.Composable:
        """The result column computed from merged partials; NULL without values."""
        parts = [sql.Identifier(partial.column.name) for partial in self.partials]
        kind = type_name(self.column.postgres_type)
        match self.function:
            case AggregateFunction.SUM:
                return sql.SQL("CASE WHEN {1} > 0 THEN {0}::{2} END").format(
                    *parts, kind
                )
            case AggregateFunction.AVG:
                return sql.SQL("({0}::{2} / nullif({1}, 0)::{2})").format(*parts, kind)
            case _:
                return parts[0]

    def _partial(self, part: str, postgres_type: str, merge: str) -> Partial:
        # The prefix that pipelines may not use keeps it apart from their columns.
        name = f"tallyweir_a{self.number}_{part}"
        return Partial(
            column=Column(name=name, postgres_type=postgres_type), merge=merge
        )


#: The first column of every window table, its state and its staging.
WINDOW_START = Column(name="window_start", postgres_type="timestamp with time zone")
WINDOW_END = Column(name="window_end", postgres_type="timestamp with time zone")

#: How many events a group holds, whatever its aggregates count.
WINDOW_EVENTS = Partial(
    column=Column(name="tallyweir_events", postgres_type="bigint"), merge="add"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowTable:
    """One row per fixed window and group; ``branches`` as in ``AppendTable``."""

    table: str
    staging_table: str
    size_us: int
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
    def partials(self) -> tuple[Partial, ...]:
        return (
            WINDOW_EVENTS,
            *(part for aggregate in self.aggregates for part in aggregate.partials),
        )

    @property
    def staging_columns(self) -> tuple[Column, ...]:
        return (*self.keys, *(partial.column for partial in self.partials))

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


#: The key of a message and the producer's ID, as they are staged beside its fields.
OUTBOX_KEY = "tallyweir_key"
OUTBOX_EVENT_ID = Column(name="tallyweir_event_id", postgres_type="text")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxTable:
    """One message per event for a topic of Kafka, in the home's outbox.

    Attributes:
        table: What the ledger calls it; no table has this name.
        staging_table: Where tasks put the events first.
        topic: Where the relay sends the messages.
        fields: What a message holds.
        key: The event's column that gives the message's key, with its type.
    """

    table: str
    staging_table: str
    topic: str
    fields: tuple[Column, ...]
    key: Column
    kind: ClassVar[str] = "outbox"

    @property
    def branches(self) -> tuple[str, ...]:
        """Who publishes it: the home, whose outbox it is."""
        return (HOME,)

    @property
    def staging_columns(self) -> tuple[Column, ...]:
        key = Column(name=OUTBOX_KEY, postgres_type=self.key.postgres_type)
        return (*self.fields, key, OUTBOX_EVENT_ID, *POSITION_COLUMNS)

    @property
    def key_as_bytes(self) -> sql.Composable:
        """The key as Kafka gets it: bytes as they are, all else as text."""
        key = sql.Identifier(OUTBOX_KEY)
        if self.key.postgres_type == "bytea":
            return key
        return sql.SQL("convert_to({}::text, 'UTF8')").format(key)


Output = AppendTable | WindowTable | OutboxTable


@dataclass(frozen=True, slots=True, kw_only=True)
class HomeLayout:
    """Everything that the home database must know of a pipeline to serve it."""

    pipeline: str
    #: The pipeline's definition as JSON, kept for people and for ``verify``.
    definition: str
    definition_hash: str
    outputs: tuple[Output, ...]
    shards: int
    bucket_seconds: int
    watermark_delay_us: int
    idle_timeout_us: int
    #: None when the source is declared free of repeats.
    horizon_us: int | None

    @property
    def branches(self) -> tuple[str, ...]:
        """Every publish transaction beside the home's, sorted."""
        named = {branch for output in self.outputs for branch in output.branches}
        return tuple(sorted(named - {HOME}))

    @property
    def databases(self) -> tuple[str, ...]:
        """Every database that its branches publish in, sorted; maybe the home."""
        return tuple(sorted({database_of(branch) for branch in self.branches}))

    def branches_in(self, database: str) -> tuple[str, ...]:
        """Return the branches that publish in one database."""
        return tuple(b for b in self.branches if database_of(b) == database)

    def outputs_of(self, branch: str) -> tuple[Output, ...]:
        """Return the outputs that one publish transaction moves rows of."""
        return tuple(output for output in self.outputs if branch in output.branches)
