"""What every kind of output is in Postgres: tables, columns to stage, rows to move.

Pipelines declare outputs by ``tallyweir.schemas.pipeline.outputs.pipeline_output``, and
``tallyweir.spark_jobs.tables.layout_builder`` makes these of those.
``docs/architecture.md`` lists all that a new kind needs.

An output moves ``VotedRows`` and tells a replay which rows to compare, ``ReplayPart``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.ledger.output_kinds import OutputKind
from tallyweir.sinks.postgres.server.columns import Column, table_identifier
from tallyweir.sinks.postgres.server.naming import HOME, TableNames
from tallyweir.sinks.postgres.server.sqlstate import is_row_rejection
from tallyweir.sinks.postgres.server.statements import fetch_row, load_statements
from tallyweir.sinks.postgres.tables.row_digest import RowDigest
from tallyweir.sinks.postgres.tables.table_checks import TypesChangedError, unfit_types
from tallyweir.sinks.protocol.errors import RetryableError
from tallyweir.sinks.protocol.votes import BatchTally

if TYPE_CHECKING:
    from tallyweir.sinks.postgres.outputs.keyed_table import KeyedTable


@dataclass(frozen=True, slots=True)
class StagedField:
    """A staged column, as it is shown to people.

    Attributes:
        column: Its name in staging.
        shown: Its name for people.
        made_as: The result column that is computed from it; None if the column is an
            event's.
    """

    column: str
    shown: str
    made_as: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Output(ABC):
    """One output of a pipeline, and all that Postgres does for it.

    Each kind of output is a subclass in a module of its own. Drivers, tasks and audits
    use an output through this interface.

    Attributes:
        table: Where the rows go, in the database of each branch. The ledger calls the
            output by this name, also where no table has it.
        staging_table: Where tasks put the rows first; see ``staged_for``.
        branches: The branches that publish the rows. With several, each row belongs to
            one of them.
    """

    table: str
    staging_table: str
    branches: tuple[str, ...] = (HOME,)
    #: What the ledger's name of its kind says of it.
    kind: ClassVar[OutputKind]
    #: The part of a publish transaction that its time counts to.
    clock_part: ClassVar[str] = "rows"
    #: Whether each staged row is of one event, and has the event's position.
    stages_events: ClassVar[bool] = True
    #: Whether the watermark changes its tables, also in batches without rows for it.
    follows_watermark: ClassVar[bool] = False

    @property
    @abstractmethod
    def read_columns(self) -> tuple[Column, ...]:
        """The columns of events that it reads as they are."""

    @property
    def function_columns(self) -> tuple[Column, ...]:
        """The columns of events that a user's function turns into its rows."""
        return ()

    @property
    def index_key(self) -> tuple[Column, ...]:
        """The columns of events that an index of its table holds as they are."""
        return ()

    @property
    def text_key(self) -> tuple[Column, ...]:
        """The columns of events that form the key of its state, as one text."""
        return ()

    @property
    @abstractmethod
    def staging_columns(self) -> tuple[Column, ...]:
        """The columns that tasks stage for it, in ``staging_table``."""

    @property
    @abstractmethod
    def staged_fields(self) -> tuple[StagedField, ...]:
        """The columns of its staged rows that may be shown to people."""

    @property
    def keyed_staging(self) -> Mapping[str, tuple[Column, ...]]:
        """The columns that phase 2b stages for it, by staging table."""
        return {}

    @property
    def keyed(self) -> KeyedTable | None:
        """The output itself if phase 2b makes its rows, with state by key."""
        return None

    @property
    def takes_staged_rows(self) -> bool:
        """Whether staged rows go to its table as they are."""
        return False

    @property
    @abstractmethod
    def tables(self) -> dict[str, tuple[Column, ...]]:
        """The tables that readers see, each with the columns that batches write."""

    @property
    def approximate_columns(self) -> frozenset[str]:
        """Columns of its tables whose values depend on the order of their events."""
        return frozenset()

    @property
    def summed_columns(self) -> tuple[Column, ...]:
        """Columns of its tables that add up values of several events."""
        return ()

    @property
    def keeps_late(self) -> bool:
        """Whether events that come too late for it become rows of ``late_event``."""
        return False

    @property
    def shows_after_us(self) -> int | None:
        """How long events may wait to be shown; None if time alone shows no events."""
        return None

    def kept_tables(self, names: TableNames) -> Iterator[sql.Identifier]:
        """Yield the tables that keep what it took from all batches so far.

        Args:
            names: The names of the database's tables.
        """
        del names
        yield from map(table_identifier, self.tables)

    @abstractmethod
    def create(
        self,
        connection: psycopg.Connection[TupleRow],
        state: Callable[[str], sql.Identifier],
    ) -> None:
        """Make its tables exist, or check those that are there; the caller commits.

        Args:
            connection: To a database that it is published in.
            state: Names the table of its state, if it has any.

        Raises:
            ConfigurationError: As ``create_result_tables``.
            psycopg.Error: Postgres refused the table or its names.
        """

    def check(self, connection: psycopg.Connection[TupleRow]) -> None:
        """Check more of its tables than their columns.

        Raises:
            ConfigurationError: As ``create_result_tables``.
        """
        del connection

    @abstractmethod
    def move(self, voted: VotedRows, staged: str) -> MovedRows:
        """Move what was staged for it to its tables.

        Args:
            voted: The rows that were voted for, in the publish transaction.
            staged: Their staging table, as ``staged_for`` names it.

        Raises:
            RetryableError: ``STAGED_ROWS_MISSING``, after a crash of the server.
            RowRefusedError: Its table refused a row.
            psycopg.Error: Anything that the server or the connection raised.

        Crash:
            The move is part of the publish transaction. It commits with the batch, or
            not at all.
        """

    @abstractmethod
    def described(self) -> dict[str, Any]:
        """Describe its tables as JSON, to compare the next version with."""

    def knowing(
        self, closed_through_us: int | None, known_after_us: Mapping[str, int]
    ) -> Self:
        """Return it with what its windows do not know because of former versions.

        Args:
            closed_through_us: Windows that end by then take no more events.
            known_after_us: For a column: only windows that begin later know its
                aggregate.
        """
        del closed_through_us, known_after_us
        return self

    @abstractmethod
    def replay_parts(self) -> Iterator[ReplayPart]:
        """List the rows of it that a replay compares, including rows of the ledger."""


def fields_of_events(columns: Iterable[Column]) -> tuple[StagedField, ...]:
    """Show columns of events as they are."""
    return tuple(StagedField(column.name, column.name) for column in columns)


def tables_of(outputs: Iterable[Output]) -> list[str]:
    """Name the tables that readers see of some outputs."""
    return [table for output in outputs for table in output.tables]


_SQL = load_statements("tallyweir.sinks.postgres.outputs", "voted_rows.sql")


class RowRefusedError(Exception):
    """A result table refused a row; bisection must find which one."""

    def __init__(self, cause: psycopg.Error) -> None:
        super().__init__(str(cause))
        self.cause = cause


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedRows:
    """What one output has moved.

    Attributes:
        staged: The number of staged rows.
        digests: Digests of the rows that have been put for good into its table and into
            its revisions table, as the ledger keeps them.
    """

    staged: int = 0
    digests: Mapping[str, RowDigest] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class VotedRows:
    """The rows that a batch's voters have staged for one transaction.

    Attributes:
        connection: In that transaction; the caller ends it.
        tables: The names of the staging and state tables there.
        tally: The tally of the votes.
        values: The transaction's parameters: sequence, the transactions that the
            voters have staged in, when the batch was planned, and the watermark
            before and after it.
    """

    connection: psycopg.Connection[TupleRow]
    tables: TableNames
    tally: BatchTally
    values: Mapping[str, object]

    def voted(self, staged: str) -> int:
        """Return how many rows of a staging table were voted for."""
        return self.tally.staged.get(staged, 0)

    def count(self, staged: str) -> int:
        """Count the voters' rows in a staging table."""
        statement = _SQL["count_staged"].format(staging=self.tables.staging(staged))
        return int(fetch_row(self.connection, statement, self.values)[0])

    def count_skipped(self, staged: str, moved: int) -> int:
        """Return how many of the given rows a table left out."""
        # If all rows that were voted for have moved, there is nothing to count.
        return 0 if moved == self.voted(staged) else self.count(staged) - moved

    def check_moved(self, staged: str, rows: int) -> None:
        """Compare the rows that moved with those that were voted for.

        Raises:
            RetryableError: ``STAGED_ROWS_MISSING``.
        """
        voted = self.voted(staged)
        if rows != voted:
            raise RetryableError(
                "STAGED_ROWS_MISSING",
                saw=f"The tasks voted for {voted} rows of {staged}; staging holds "
                f"{rows}.",
                why="A crash of the server empties the staging tables.",
                fix="Nothing to do: the batch is staged again.",
            )

    def check_types(self, tables: Mapping[str, Sequence[Column]]) -> None:
        """Repeat a start's check of column types, under the locks of the writes.

        Raises:
            TypesChangedError: A column may have changed what was put into it.
        """
        for table, columns in tables.items():
            if unfit_types(self.connection, table, columns, per_value=False):
                raise TypesChangedError(table, "42804")


@contextmanager
def row_refusals() -> Iterator[None]:
    """Tell a row that the user's table refuses from every other error.

    Raises:
        RowRefusedError: The table refused a row in the block.
    """
    try:
        yield
    except psycopg.Error as error:
        if is_row_rejection(error):
            raise RowRefusedError(error) from error
        raise


#: The schema of Tallyweir's own tables.
_LEDGER = "tallyweir"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPart:
    """Rows of one table, or of its shards, that a replay compares.

    Attributes:
        name: The name shown to people.
        table: The table's name in the pipeline's file, or in the ledger.
        output: The output that it belongs to; None for tables of the ledger.
        keys: Columns that identify a row; if empty, all of its values do.
        said: The other columns that are compared.
        databases: The databases that hold it.
        is_state: Whether it is the state of a window output: ``table`` is the output's.
        is_ledger: Whether it is a table of Tallyweir's, with the rows of all pipelines.
        has_positions: Whether each row belongs to the position of a record.
        needs_all: Whether a row may depend on batches before those that are replayed.
        only_waiting: Whether rows leave the table once another process has taken them.
        once: Whether the table may have several copies of a row, which count as one.
        written_in: The column with the batch that wrote a row, if there is one.
        lateness_us: For windows, how long after their end they may still change.
    """

    name: str
    table: str
    keys: tuple[str, ...]
    said: tuple[str, ...]
    output: str | None = None
    databases: tuple[str, ...] = (HOME,)
    is_state: bool = False
    is_ledger: bool = False
    has_positions: bool = False
    needs_all: bool = False
    only_waiting: bool = False
    once: bool = False
    written_in: str | None = None
    lateness_us: int | None = None

    @property
    def has_sequence(self) -> bool:
        return self.is_ledger and "sequence" in (*self.keys, *self.said)

    @property
    def identifier(self) -> sql.Identifier:
        if self.is_ledger:
            return sql.Identifier(_LEDGER, self.table)
        return table_identifier(self.table)


def others(columns: tuple[Column, ...], keys: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the columns that are not keys."""
    return tuple(column.name for column in columns if column.name not in keys)
