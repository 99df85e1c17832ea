"""What every kind of output is, as a pipeline declares it.

``tallyweir.sinks.postgres.outputs.output`` is what the same kind is in Postgres.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from tallyweir.schemas.pipeline.checks.problems import Path, Problem
from tallyweir.schemas.pipeline.outputs.aggregate import Aggregate
from tallyweir.schemas.pipeline.outputs.known_columns import KnownColumns


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

    #: Whether it has a table of users.
    has_table: ClassVar[bool] = True
    #: Whether it calls functions of users.
    has_code: ClassVar[bool] = False
    #: Whether each of its rows is of one event, so that a correction can replace it.
    has_event_rows: ClassVar[bool] = False
    #: What it does that a batch must not do again, and why; None if it repeats rows.
    unrepeatable: ClassVar[tuple[str, str] | None] = None

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
