"""Databases for a dry run: like those of the pipeline, and dropped after the run."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from tallyweir.schemas.pipeline import Pipeline
from tallyweir.sinks.postgres.schema.scratch_database import ScratchDatabase
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.databases import DATABASES_VARIABLE
from tallyweir.sinks.postgres.server.naming import HOME
from tallyweir.sinks.postgres.tables.shadow_tables import find_shadow_tables
from tallyweir.sinks.postgres.tables.table_definition import (
    TableDefinition,
    create_defined_table,
    create_schemas,
    read_table_definitions,
)
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.settings import (
    FILE_SUFFIX,
    HOME_DSN_VARIABLE,
    SCRATCH_DSN_VARIABLE,
)
from tallyweir.spark_jobs.engine.driver_settings import DriverSettings


class ScratchHome:
    """A scratch database for the home, and one for each that the pipeline writes to.

    Args:
        servers: The server of each, by the name of the database that it stands for.
        pipeline: The pipeline whose tables they hold.
        tables: The definitions of the pipeline's real tables, by database.

    Raises:
        TallyweirError: As ``ScratchDatabase``.
    """

    def __init__(
        self,
        servers: Mapping[str, str],
        pipeline: Pipeline,
        tables: Mapping[str, Sequence[TableDefinition]],
    ) -> None:
        self._opened = ExitStack()
        #: The connection strings of all databases by name, the home's among them.
        self.dsns: dict[str, str] = {}
        #: Demands of the real tables that the scratch tables do not make.
        self.not_demanded: list[str] = []
        try:
            for database in (HOME, *pipeline.written_databases):
                scratch = self._opened.enter_context(ScratchDatabase(servers[database]))
                self.dsns[database] = scratch.dsn
                self._create_tables(database, pipeline, tables.get(database, ()))
        except BaseException:
            self._opened.close()
            raise

    @property
    def home_dsn(self) -> str:
        return self.dsns[HOME]

    @property
    def databases(self) -> dict[str, str]:
        """The connection strings of all databases except the home, by name."""
        return {name: dsn for name, dsn in self.dsns.items() if name != HOME}

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that tell a task where to stage."""
        return {
            HOME_DSN_VARIABLE: self.home_dsn,
            DATABASES_VARIABLE: json.dumps(self.databases),
        }

    def settings(self, given: DriverSettings, directory: Path) -> DriverSettings:
        """Return the settings of a driver that works here and nowhere else.

        Args:
            given: The settings of the process.
            directory: For the files of a claim; no running driver may use it.
        """
        return replace(
            given,
            home_dsn=self.home_dsn,
            databases={**given.databases, **self.databases},
            state_directory=directory,
            claims_port=0,
        )

    @contextmanager
    def in_environment(self) -> Iterator[None]:
        """Let tasks of this process find these databases."""
        names = [*self.variables, *(name + FILE_SUFFIX for name in self.variables)]
        kept = {name: os.environ.pop(name, None) for name in names}
        os.environ.update(self.variables)
        try:
            yield
        finally:
            for name, value in kept.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value

    def close(self) -> None:
        """Drop them all."""
        self._opened.close()

    def _create_tables(
        self, database: str, pipeline: Pipeline, tables: Sequence[TableDefinition]
    ) -> None:
        written = [
            one.table
            for one in pipeline.outputs
            if database in one.databases and one.has_table
        ]
        name = "tallyweir scratch"
        with connect(self.dsns[database], application_name=name) as connection:
            create_schemas(connection, written)
            for definition in tables:
                if definition.table in written:
                    left = create_defined_table(connection, definition)
                    self.not_demanded += [f"{definition.table}: {one}" for one in left]


def read_result_tables(
    settings: DriverSettings, pipeline: Pipeline
) -> dict[str, tuple[TableDefinition, ...]]:
    """Read the definitions of a pipeline's real tables, by database.

    A shadow table is defined under the name that the pipeline's file has for it.

    Raises:
        RetryableError: A server is unreachable.
    """
    own = find_shadow_tables(settings.home_dsn, pipeline.name)
    found = {}
    for database in (HOME, *pipeline.written_databases):
        tables = {
            own.get(one.table, one.table): one.table
            for one in pipeline.outputs
            if database in one.databases and one.has_table
        }
        name = "tallyweir result tables"
        with connect(settings.dsns[database], application_name=name) as connection:
            found[database] = tuple(
                replace(one, table=tables[one.table])
                for one in read_table_definitions(connection, tables)
            )
    return found


def scratch_server(environment: Mapping[str, str]) -> str:
    """Return the connection string of the server for scratch databases.

    Raises:
        ConfigurationError: ``SETTING_MISSING``.
    """
    dsn = environment.get(SCRATCH_DSN_VARIABLE)
    if not dsn:
        raise ConfigurationError(
            "SETTING_MISSING",
            saw=f"{SCRATCH_DSN_VARIABLE} is not set.",
            why="The stages need a scratch database.",
            fix="Open the notebook with tallyweir notebook, which starts a server "
            "for it.",
        )
    return dsn
