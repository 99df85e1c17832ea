"""The databases that hold results of one pipeline: the home and its participants.

An audit cannot read several databases in one snapshot, so it takes the home's first.
The other databases show everything that was committed there by then. Anything newer in
them belongs to batches that the home has decided since.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import MappingProxyType

from psycopg import Connection, sql
from psycopg.rows import DictRow, TupleRow

from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    AuditedOutput,
    AuditedPipeline,
    fetch,
    snapshot,
)
from tallyweir.sinks.postgres.server.columns import columns_of
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.databases import (
    DATABASES_VARIABLE,
    parse_databases,
)
from tallyweir.sinks.postgres.server.naming import HOME, state_table
from tallyweir.sinks.postgres.server.sqlstate import translated
from tallyweir.sinks.postgres.tables.foreign_code import keep_tables
from tallyweir.sinks.protocol.errors import (
    ConfigurationError,
    RetryableError,
    TallyweirError,
)

#: For pipelines that keep all results in the home database.
NO_DATABASES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedDatabase:
    """One database and the connection through which an audit reads it."""

    name: str
    connection: Connection[TupleRow]

    def fetch(
        self, statement: sql.SQL | sql.Composed, **values: object
    ) -> list[DictRow]:
        """Return all rows by column name; errors name the database."""
        with translated(f"reading database {self.name}"):
            return fetch(self.connection, statement, **values)

    @property
    def place(self) -> str:
        """Where something is, after the name of its table; empty for the home."""
        return "" if self.name == HOME else f" in {self.name}"

    def columns(self, table: sql.Identifier) -> dict[str, str]:
        """Return what ``columns_of`` returns; errors name the database."""
        with translated(f"reading database {self.name}"):
            return columns_of(self.connection, table)

    def missing(self, output: AuditedOutput, columns: Iterable[str]) -> str:
        """List the columns that an output's table lacks; empty if it has them all."""
        present = self.columns(output.identifier)
        return ", ".join(one for one in columns if one not in present)

    def state_table(self, pipeline: AuditedPipeline, table: str) -> sql.Identifier:
        """Name the table that keeps the open windows of a window output."""
        return state_table(
            pipeline.number,
            table,
            installation=None if self.name == HOME else pipeline.installation,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedDatabases:
    """Every database that an audit of one pipeline must read, by name."""

    by_name: Mapping[str, AuditedDatabase]

    @property
    def home(self) -> AuditedDatabase:
        return self.by_name[HOME]

    @property
    def beside_home(self) -> tuple[AuditedDatabase, ...]:
        return tuple(one for name, one in self.by_name.items() if name != HOME)

    @contextmanager
    def snapshots(self, pipeline: AuditedPipeline) -> Iterator[None]:
        """Give the block one snapshot of each database; the caller has the home's.

        Raises:
            ConfigurationError: ``FOREIGN_CODE``.
        """
        with ExitStack() as snapshots:
            for one in self.beside_home:
                doing = f"reading database {one.name}"
                snapshots.enter_context(snapshot(one.connection, doing=doing))
            for one in self.by_name.values():
                with translated(f"reading database {one.name}"):
                    keep_tables(one.connection, pipeline, one.name)
            yield

    @contextmanager
    def now(self, pipeline: AuditedPipeline) -> Iterator[None]:
        """Let each statement of the block see everything committed when it begins.

        Raises:
            ConfigurationError: ``FOREIGN_CODE``.
        """
        with ExitStack() as transactions, translated("looking again"):
            for one in self.by_name.values():
                transactions.enter_context(one.connection.transaction())
                keep_tables(one.connection, pipeline, one.name)
            yield

    def of(self, output: AuditedOutput) -> tuple[AuditedDatabase, ...]:
        """Return the databases that hold a part of an output."""
        return tuple(self.by_name[name] for name in output.databases)


def databases_of(pipeline: AuditedPipeline) -> set[str]:
    """Name the participants that hold outputs of a pipeline."""
    return {name for output in pipeline.outputs for name in output.databases} - {HOME}


def connect_databases(
    opened: ExitStack,
    home: Connection[TupleRow],
    names: Iterable[str],
    conninfos: Mapping[str, str],
) -> AuditedDatabases:
    """Connect to every named participant.

    Args:
        opened: Closes the new connections.
        home: The connection to the home database.
        names: Names of the participants; the home's is ignored.
        conninfos: libpq connection strings by name; extra names are allowed.

    Raises:
        ConfigurationError: ``DATABASE_UNKNOWN``, or the login was refused.
        RetryableError: A database does not respond.
    """
    wanted = sorted(set(names) - {HOME})
    known = parse_databases({}, {**dict.fromkeys(wanted, ""), **conninfos})
    databases = {HOME: AuditedDatabase(name=HOME, connection=home)}
    for name in wanted:
        connection = opened.enter_context(_connect(name, known[name]))
        databases[name] = AuditedDatabase(name=name, connection=connection)
    return AuditedDatabases(by_name=databases)


def _connect(name: str, conninfo: str) -> Connection[TupleRow]:
    try:
        return connect(conninfo, application_name="tallyweir audit")
    except (ConfigurationError, RetryableError) as error:
        raise _unreachable(name, error) from error


def _unreachable(name: str, error: TallyweirError) -> TallyweirError:
    # The connection's own error text speaks of the home database.
    return type(error)(
        error.code,
        saw=f"Database {name}: {error.saw}",
        why="It holds results of the pipeline, which cannot be checked.",
        fix="Check that its server runs, and that the pipeline file or "
        f"{DATABASES_VARIABLE} has the right connection string.",
    )
