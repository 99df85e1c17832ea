"""The broker, database server, topics and drivers that belong to trials only.

All their files are in ``chaos-templates`` inside of the state directory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from tallyweir.services.dev.chaos.supervisor import PATIENCE_S, Supervisor
from tallyweir.services.dev.cleared_directory import cleared_directory
from tallyweir.services.local.embedded.kafka import EmbeddedKafka
from tallyweir.services.local.embedded.postgres import EmbeddedPostgres
from tallyweir.services.local.embedded.state_directory import (
    STATE_DIRECTORY_VARIABLE,
    empty_directory,
)
from tallyweir.services.local.templates.lookup_tables import make_tables
from tallyweir.services.local.templates.template import Template
from tallyweir.services.process.endpoints import Endpoints, child_environment
from tallyweir.sinks.postgres.server.connection import connect

_DRIVER_MEMORY = "1g"


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateRun:
    """One run of a template: its database and its drivers' files.

    Attributes:
        pipeline: The pipeline's name.
        pipeline_file: The pipeline file that the drivers run.
        endpoints: The broker, and the run's own database.
        directory: The directory of its drivers' files.
        batch_offsets_max: Most offsets that a batch may read.
    """

    pipeline: str
    pipeline_file: Path
    endpoints: Endpoints
    directory: Path
    batch_offsets_max: int

    def connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        """Connect to its database, in autocommit."""
        return connect(
            self.endpoints.home_dsn,
            autocommit=True,
            application_name="tallyweir chaos-templates",
        )

    @contextmanager
    def supervised(self, tell: Callable[[str], None]) -> Iterator[Supervisor]:
        """Keep a driver at work for the block, and end all drivers after it.

        Raises:
            FatalError: The first driver does not start.
        """
        supervisor = Supervisor(
            self.pipeline_file, self.directory, self.driver_environment, tell
        )
        supervisor.start()
        try:
            first = supervisor.start_driver(self.directory / "driver")
            supervisor.await_change(
                lambda: first.epoch > 0 or first.exit_code is not None, PATIENCE_S
            )
            if first.epoch == 0:
                raise first.process.failure("did not start")
            yield supervisor
        finally:
            supervisor.close()

    def driver_environment(self, state: Path) -> dict[str, str]:
        """Return the environment of a driver that keeps its files in ``state``."""
        return child_environment(self.endpoints) | {
            STATE_DIRECTORY_VARIABLE: str(state),
            "TALLYWEIR_BATCH_OFFSETS_MAX": str(self.batch_offsets_max),
            "TALLYWEIR_DRIVER_MEMORY": _DRIVER_MEMORY,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateWorld:
    """Where trials take place, one after the other.

    Attributes:
        directory: The directory of all its files.
        kafka: The broker.
        postgres: The server of all runs' databases.
    """

    directory: Path
    kafka: EmbeddedKafka
    postgres: EmbeddedPostgres

    def make_run(
        self, template: Template, pipeline_file: Path, name: str, *, batch: int
    ) -> TemplateRun:
        """Make a run with a fresh database and the template's lookup tables.

        Args:
            template: The template that is run.
            pipeline_file: Its pipeline file.
            name: The name of the run, unique within the template.
            batch: Most offsets that a batch may read.
        """
        database = f"{template.name}_{name}".replace("-", "_")
        with connect(
            self.postgres.dsn,
            autocommit=True,
            application_name="tallyweir chaos-templates",
        ) as connection:
            connection.execute(
                sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database))
            )
        dsn = make_conninfo(self.postgres.dsn, dbname=database)
        make_tables(dsn, template)
        directory = pipeline_file.parent / name
        directory.mkdir()
        return TemplateRun(
            pipeline=_pipeline_name(template),
            pipeline_file=pipeline_file,
            endpoints=Endpoints(kafka_bootstrap=self.kafka.bootstrap, home_dsn=dsn),
            directory=directory,
            batch_offsets_max=batch,
        )


@contextmanager
def template_world(*, keep: bool) -> Iterator[TemplateWorld]:
    """Make a fresh world; end what an earlier one left running.

    Args:
        keep: Whether the files stay. Servers stop in any case.

    Raises:
        RetryableError: A server did not start.

    Crash:
        A trial that is killed leaves its servers and drivers running; the next trial
        ends them, and deletes their data.
    """
    with cleared_directory("chaos-templates") as directory, ExitStack() as stack:
        if not keep:
            stack.callback(empty_directory, directory)
        kafka = EmbeddedKafka(directory / "kafka")
        postgres = EmbeddedPostgres(directory / "postgres")
        for server in (kafka, postgres):
            stack.callback(server.stop)
            server.start()
        yield TemplateWorld(directory=directory, kafka=kafka, postgres=postgres)


def _pipeline_name(template: Template) -> str:
    (name,) = (p.default for p in template.parameters if p.name == "pipeline")
    return name
