"""The demo's own servers, topic and tables, so that it touches no others.

All its files are in ``demo`` inside of the state directory. This folder has the layout
of a state directory, so other commands find the demo's servers if the operator names it
as their state directory.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from psycopg import Connection
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow

from tallyweir.services.dev.cleared_directory import cleared_directory
from tallyweir.services.dev.demo.ledger import create_airlines, refuse_used_database
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
