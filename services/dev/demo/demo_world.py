"""The demo's own servers, topic and tables, and what its home database says.

The demo touches no servers, topics or tables but its own. All its files are in ``demo``
inside of the state directory. This folder has the layout of a state directory, so other
commands find the demo's servers if the operator names it as their state directory. The
demo's only authority is its home database (``Ledger``).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from psycopg import Connection
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow

from tallyweir.services.dev.cleared_directory import cleared_directory
from tallyweir.services.dev.demo.scenario import PARTITIONS
from tallyweir.services.kafka.topics import ensure_topic
from tallyweir.services.local.datasets.flights import read_airlines
from tallyweir.services.local.embedded.kafka import EmbeddedKafka
from tallyweir.services.local.embedded.postgres import EmbeddedPostgres
from tallyweir.services.local.embedded.state_directory import (
    ROOT,
    STATE_DIRECTORY_VARIABLE,
    empty_directory,
)
from tallyweir.services.process.endpoints import (
    Endpoints,
    child_environment,
    given_home_dsn,
    given_kafka_bootstrap,
)
from tallyweir.sinks.postgres.schema.migrations import migrate
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.sqlstate import translated
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.offsets import TopicPartition

_SQL = load_statements("tallyweir.services.dev.demo", "ledger.sql")

AIRLINES = "airlines"
TABLES = (
    AIRLINES,
    "departures",
    "departures_by_hour",
    "departures_by_hour_revisions",
)


class Ledger:
    """A pipeline's state, which every call reads again.

    Args:
        connection: A connection in autocommit, so that no call sees an old snapshot.
        pipeline: Its name.
    """

    def __init__(self, connection: Connection[TupleRow], pipeline: str) -> None:
        self._connection = connection
        self._pipeline = {"pipeline": pipeline}

    def read_last_sequence(self) -> int:
        """Return the number of the batch that was published last, or 0.

        Waits for a publish transaction that is under way, even one of a dead driver.
        """
        with translated("reading the ledger"):
            row = self._connection.execute(
                _SQL["last_sequence"], self._pipeline
            ).fetchone()
        return 0 if row is None else int(row[0])

    def read_positions(self) -> dict[TopicPartition, int]:
        """Return the next offset to read, for each partition."""
        with translated("reading the ledger"):
            rows = self._connection.execute(
                _SQL["positions"], self._pipeline
            ).fetchall()
        return {TopicPartition(topic, part): offset for topic, part, offset in rows}

    def read_visible_positions(self) -> dict[TopicPartition, int]:
        """Return, for each partition, the offset below which all results are visible.

        Visible means in every database. The result is empty before the pipeline's first
        start.
        """
        with translated("reading the ledger"):
            rows = self._connection.execute(
                _SQL["visible_positions"], self._pipeline
            ).fetchall()
        return {TopicPartition(topic, part): offset for topic, part, offset in rows}

    def read_repeated_id(self) -> str:
        """Return the ID of an event that came more than once; empty if none did."""
        with translated("reading the repeats"):
            row = self._connection.execute(
                _SQL["repeated_id"], self._pipeline
            ).fetchone()
        return "" if row is None else str(row[0])


def refuse_used_database(connection: Connection[TupleRow], pipeline: str) -> None:
    """Refuse a database that already has the demo's tables or its pipeline.

    Raises:
        ConfigurationError: ``DEMO_DATABASE_IN_USE``.
    """
    with translated("looking for the demo's tables"):
        rows = connection.execute(
            _SQL["tables_there"], {"tables": list(TABLES)}
        ).fetchall()
        found = [f"table {name}" for (name,) in rows]
        if _is_true(connection, "ledger_there") and _is_true(
            connection, "pipeline_there", pipeline=pipeline
        ):
            found.append(f"pipeline {pipeline}")
    if found:
        raise ConfigurationError(
            "DEMO_DATABASE_IN_USE",
            saw=f"The home database already has {', '.join(found)}.",
            why="The demo counts from zero and does not touch tables that it did not "
            "create.",
            fix="Let TALLYWEIR_HOME_DSN name an empty database (createdb demo), or "
            "unset it: the demo then brings its own server.",
        )


def create_airlines(
    connection: Connection[TupleRow], airlines: Sequence[tuple[str, str]]
) -> None:
    """Create the lookup table that the pipeline enriches with.

    Crash:
        The table exists with all of its rows, or not at all.
    """
    with (
        translated("making the lookup table"),
        connection.transaction(),
        connection.cursor() as cursor,
    ):
        cursor.execute(_SQL["create_airlines"])
        cursor.executemany(_SQL["insert_airline"], airlines)


def _is_true(
    connection: Connection[TupleRow], statement: str, **values: object
) -> bool:
    row = connection.execute(_SQL[statement], values).fetchone()
    return row is not None and bool(row[0])


PIPELINE = "departures"
TOPIC = "flight-departures"

PIPELINE_SOURCE = ROOT / "spark_jobs" / "pipelines" / "departures.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoWorld:
    """Where one demo takes place.

    Attributes:
        directory: The directory of all its files.
        endpoints: Its Kafka and its home database.
        has_own_servers: Whether one of them is embedded.
        shown_dsn: The connection string of the home database, without a password.
        pass_file: The password file of the demo's own server; None for another one.
        pipeline_file: The pipeline file, which reads the demo's topic.
        topic: The topic, which has ``PARTITIONS`` partitions and is empty.
        home: A connection to the home database, in autocommit.
        databases: Connection strings of other databases with results; the demo's own
            pipeline has no others.
    """

    directory: Path
    endpoints: Endpoints
    has_own_servers: bool
    shown_dsn: str
    pass_file: Path | None
    pipeline_file: Path
    topic: str
    home: Connection[TupleRow]
    databases: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def checkpoints(self) -> Path:
        """The directory of the driver's Spark checkpoints."""
        return self.directory / "checkpoints"

    def driver_environment(self) -> dict[str, str]:
        """Return the environment in which a driver works here."""
        return child_environment(self.endpoints) | {
            STATE_DIRECTORY_VARIABLE: str(self.directory)
        }


@contextmanager
def demo_world(*, keep: bool) -> Iterator[DemoWorld]:
    """Make a fresh world; end what an earlier demo left running.

    Args:
        keep: Whether embedded servers go on when the block ends well. If it ends by an
            error or a signal, they are stopped in any case.

    Raises:
        ConfigurationError: A given database already has the demo's tables.
        RetryableError: A server does not answer.

    Crash:
        A demo that is killed leaves its servers and its driver running; the next
        one ends them, and deletes their data.
    """
    with cleared_directory("demo") as directory, ExitStack() as servers:
        kafka = EmbeddedKafka(directory / "kafka")
        postgres = EmbeddedPostgres(directory / "postgres")
        pipeline_file = directory / PIPELINE_SOURCE.name
        given_dsn, given_bootstrap = given_home_dsn(), given_kafka_bootstrap()
        if given_dsn is None:
            servers.callback(postgres.stop)
            postgres.start()
        dsn = postgres.dsn if given_dsn is None else given_dsn
        home = connect(dsn, application_name="tallyweir demo")
        servers.callback(home.close)
        home.autocommit = True
        refuse_used_database(home, PIPELINE)
        if given_bootstrap is None:
            servers.callback(kafka.stop)
            kafka.start()
        bootstrap = given_bootstrap or kafka.bootstrap
        topic = f"{TOPIC}-demo-{uuid.uuid4().hex[:12]}" if given_bootstrap else TOPIC
        ensure_topic(bootstrap, topic, partitions=PARTITIONS)
        migrate(dsn)
        create_airlines(home, read_airlines())
        _write_pipeline(pipeline_file, topic)
        own = given_dsn is None
        pass_file, uri = postgres.login if own else (None, _without_password(dsn))
        yield DemoWorld(
            directory=directory,
            endpoints=Endpoints(kafka_bootstrap=bootstrap, home_dsn=dsn),
            has_own_servers=given_dsn is None or given_bootstrap is None,
            shown_dsn=uri,
            pass_file=pass_file,
            pipeline_file=pipeline_file,
            topic=topic,
            home=home,
        )
        if keep:
            home.close()
            servers.pop_all()
            return
        servers.close()
        empty_directory(directory)


def _without_password(dsn: str) -> str:
    fields = conninfo_to_dict(dsn)
    fields.pop("password", None)
    return make_conninfo("", **fields)


def _write_pipeline(path: Path, topic: str) -> None:
    text = PIPELINE_SOURCE.read_text("utf-8")
    named = text.replace(f"topic: {TOPIC}", f"topic: {topic}", 1)
    assert topic in named, "the pipeline reads the topic that is named here"
    path.write_text(named, "utf-8")
