"""What every kind of output is, as a pipeline declares it.

``tallyweir.sinks.postgres.outputs.output`` is what the same kind is in Postgres.
``KnownColumns`` has the columns that an output, like every part of a pipeline, may
name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from tallyweir.schemas.contract import ContractField
from tallyweir.schemas.pipeline.checks.problems import Path, Problem, StandIn, suggest
from tallyweir.schemas.pipeline.expressions.expressions import (
    find_mistyped,
    find_unknown_columns,
)
from tallyweir.schemas.pipeline.outputs.aggregate import Aggregate
from tallyweir.schemas.schema_tree import NESTED_TYPES


class Output(ABC):
    """One output of a pipeline; each kind is a subclass in a module of its own.

    Attributes:
        table: Where to. The ledger calls the output by this name, also where no table
            has it.
        where: Spark SQL that must be true of an event for the output to take it.
        databases: Where its table is; with several, each row is in one of them.
        shard_by: Fields of the event whose values choose among several databases.
    """

    __slots__ = ()

    #: Every kind by its name; a subclass with a name adds itself.
    kinds: ClassVar[dict[str, type[Output]]] = {}

    #: The kind's name in pipeline files and in the ledger.
    kind: ClassVar[str]
    #: Whether it has a table of users.
    has_table: ClassVar[bool] = True
    #: Whether it calls functions of users.
    has_code: ClassVar[bool] = False
    #: Whether each of its rows is of one event, so that a correction can replace it.
    has_event_rows: ClassVar[bool] = False
    #: Whether it reads the events' time from their column, not with each event.
    reads_event_time: ClassVar[bool] = False
    #: What it does that a batch must not do again, and why; None if it repeats rows.
    unrepeatable: ClassVar[tuple[str, str] | None] = None

    def __init_subclass__(cls) -> None:
        if "kind" in vars(cls):
            cls.kinds[cls.kind] = cls

    if TYPE_CHECKING:
        # Most are fields of dataclasses, which would take a property for a default.
        @property
        @abstractmethod
        def table(self) -> str: ...
        @property
        @abstractmethod
        def where(self) -> str | None: ...
        @property
        @abstractmethod
        def databases(self) -> tuple[str, ...]: ...
        @property
        @abstractmethod
        def shard_by(self) -> tuple[str, ...]: ...

    @property
    def transactions(self) -> int:
        """How many transactions publish it at a time in its one database."""
        return 1

    @property
    def names(self) -> Mapping[str, str]:
        """What it makes in the database, by the key that names it."""
        return {"table": self.table}

    def renamed(self, table: str) -> Self:
        """Return it with another table."""
        # Every kind that has a table is a dataclass with this field.
        itself: Any = self
        changed: Self = replace(itself, table=table)
        return changed

    @property
    def sends_to(self) -> str | None:
        """The topic that gets its messages; None if it sends none."""
        return None

    @property
    def sides(self) -> Mapping[str, str]:
        """The conditions of the sides that it pairs events of, by their names."""
        return {}

    @property
    def conditions(self) -> Mapping[Path, str]:
        """The conditions that its events must meet, by the keys that say them."""
        return {} if self.where is None else {("where",): self.where}

    @property
    def arguments(self) -> tuple[tuple[int, Aggregate, str], ...]:
        """Its aggregates of an expression, with their numbers and the expressions."""
        return ()

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns of events that tell its rows apart."""
        return ()

    @property
    def named_columns(self) -> tuple[str, ...]:
        """The columns of events that it names, but for those in expressions."""
        return (*self.key_columns, *self.shard_by)

    @property
    def own_columns(self) -> tuple[str, ...]:
        """The columns of its table that are none of its events'."""
        return ()

    def holds(self, column: str) -> bool:
        """Tell whether its rows hold a column of their events as it is."""
        del column
        return False

    @abstractmethod
    def check_columns(self, known: KnownColumns) -> Iterator[Problem]:
        """Find columns that it names and that events do not have, or that misfit."""

    def touched_columns(
        self, touched: Collection[str], event_time: str
    ) -> Iterator[str]:
        """Yield the columns that it makes itself of some columns of its events.

        Args:
            touched: Those columns.
            event_time: The one with the time of events.
        """
        del touched, event_time
        yield from ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownColumns:
    """The columns of events, as far as a part of the pipeline sees them.

    Attributes:
        names: Those that an output without a list of columns takes, in order.
        fields: The part of them that is read from records.
        kafka: What Kafka has of each record, where no column hides it.
    """

    names: Sequence[str]
    fields: Sequence[ContractField]
    kafka: Sequence[ContractField] = ()

    @property
    def usable(self) -> tuple[str, ...]:
        """All columns that may be named."""
        return (*self.names, *(one.name for one in self.kafka))

    @property
    def types(self) -> Mapping[str, str]:
        """The types of what is read; what is added has a type for Spark only."""
        return {field.name: field.type for field in (*self.fields, *self.kafka)}

    def check_expression(self, text: str | None) -> Iterator[Problem]:
        """Find columns that an expression reads and that are not there, or misfit."""
        if text is not None:
            yield from find_unknown_columns(text, self.usable)
            yield from find_mistyped(text, self.types)

    def check_all(self, columns: Sequence[str] | None, key: str) -> Iterator[Problem]:
        """Find those of a list that are not there."""
        for index, column in enumerate(columns or ()):
            yield from check_known(column, self.usable, (key, index))

    def check_simple(
        self, column: str, at: Path, *, why: str, fix: str
    ) -> Iterator[Problem]:
        """Refuse a field that is an array, a map or a record."""
        kind = self.types.get(column)
        if kind in NESTED_TYPES:
            yield Problem(
                code="PIPELINE_COLUMN_TYPE",
                at=at,
                saw=f"The field {column!r} is of type {kind}.",
                why=why,
                fix=fix,
            )


def check_new(column: str, known: Iterable[str], at: Path) -> Iterator[Problem]:
    """Refuse a column that the events have already."""
    if column.casefold() in {name.casefold() for name in known}:
        yield Problem(
            code="PIPELINE_DUPLICATE_NAME",
            at=at,
            saw=f"The pipeline would create a column {column!r}.",
            why="The events already have a column of that name; names ignore case.",
            fix="Choose another name.",
        )


def check_known(column: str, known: Iterable[str], at: Path) -> Iterator[Problem]:
    """Refuse a column that the events do not have."""
    if column not in known and not isinstance(column, StandIn):
        yield Problem(
            code="PIPELINE_UNKNOWN_COLUMN",
            at=at,
            saw=f"There is no column {column!r}.",
            why="The events do not have it.",
            fix=suggest(column, known),
        )
