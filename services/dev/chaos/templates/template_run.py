"""A template's trial: two runs read the same topic, and one has its drivers killed.

The broker, database server, topics and drivers belong to trials only. All their files
are in ``chaos-templates`` inside of the state directory.
"""

from __future__ import annotations

import datetime as dt
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from tallyweir.schemas.contract import load_contract
from tallyweir.services.dev.chaos.plan import ChaosOptions
from tallyweir.services.dev.chaos.supervisor import PATIENCE_S, Supervisor
from tallyweir.services.dev.chaos.templates.results import (
    TemplateReport,
    compare_results,
    read_results,
)
from tallyweir.services.dev.chaos.templates.stream import PARTITIONS, TemplateStream
from tallyweir.services.dev.chaos.verdict import judge_replay
from tallyweir.services.dev.cleared_directory import cleared_directory
from tallyweir.services.kafka.topics import ensure_topic
from tallyweir.services.local.embedded.kafka import EmbeddedKafka
from tallyweir.services.local.embedded.postgres import EmbeddedPostgres
from tallyweir.services.local.embedded.state_directory import (
    STATE_DIRECTORY_VARIABLE,
    empty_directory,
)
from tallyweir.services.local.templates.lookup_tables import make_tables
from tallyweir.services.local.templates.template import (
    Template,
    read_template,
    write_files,
)
from tallyweir.services.operate.spark_process import run_replay
from tallyweir.services.process.endpoints import Endpoints, child_environment
from tallyweir.services.produce.faults import Message
from tallyweir.services.produce.producer import EventProducer
from tallyweir.services.produce.source_section import read_source_section
from tallyweir.sinks.kafka_admin import KafkaAdmin
from tallyweir.sinks.postgres.audit import Verdict, verify
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.errors import FatalError

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
        try:
            supervisor.start_first(self.directory / "driver")
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


_SQL = load_statements("tallyweir.services.dev.chaos.templates", "results.sql")

#: Batches for each kill, so that enough batches are left for the kills to come.
_BATCHES_PER_KILL = 3
_BATCH_OFFSETS = 100_000
_MID_BATCH_WAIT_S = 10.0
_POLL_S = 0.1

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Topic:
    """The topic that the runs read."""

    bootstrap: str
    name: str

    def send(self, messages: Iterable[Message]) -> int:
        """Send all messages; return their number, once the broker has them."""
        producer = EventProducer(self.bootstrap)
        for message in messages:
            producer.send(
                self.name,
                key=message.key,
                payload=message.payload,
                partition=message.partition,
            )
        return producer.flush()

    def count(self) -> int:
        """Add up the ends of all partitions, which is where a run's offsets end."""
        positions = KafkaAdmin(self.bootstrap, self.name).read_positions()
        return sum(at.log_end_offset + at.held_back for at in positions.values())


def kill_template(
    name: str, options: ChaosOptions, world: TemplateWorld, tell: Tell
) -> TemplateReport:
    """Run a template twice over one topic, kill one run's drivers, and compare.

    The end of the stream, which closes every window, is sent once both runs have read
    the rest, so that the windows still open do not depend on where a batch began.

    Raises:
        FatalError: ``CHAOS_STUCK``: a run did not go on, or there was nothing to kill.
        ConfigurationError: ``TEMPLATE_UNKNOWN``.
    """
    began = time.monotonic()
    template = read_template(name)
    topic = _Topic(bootstrap=world.kafka.bootstrap, name=f"chaos-{name}")
    pipeline_file, *_ = write_files(
        world.directory / name, template.files({"topic": topic.name}), replace=False
    )
    section = read_source_section(pipeline_file)
    ensure_topic(topic.bootstrap, topic.name, partitions=PARTITIONS)
    stream = TemplateStream(
        contract=load_contract(section.choose_schema(None), pipeline_file),
        event_id=section.event_id,
        dataset=template.dataset,
        events=options.events,
        seed=options.seed,
        now=dt.datetime.now(dt.UTC),
    )
    sent = topic.send(stream.body())
    tell(f"{name}: {sent:,} messages are in {topic.name}")
    share = max(1, sent // (_BATCHES_PER_KILL * (options.kills + 2)))
    undisturbed = world.make_run(
        template, pipeline_file, "undisturbed", batch=_BATCH_OFFSETS
    )
    killed = world.make_run(template, pipeline_file, "killed", batch=share)
    with undisturbed.supervised(tell) as supervisor:
        _finish(undisturbed, supervisor, sent)
    tell(f"{name}: the undisturbed run has read them")
    with killed.supervised(tell) as supervisor:
        _Killer(killed, supervisor, options, sent, tell).run()
        _await_done(killed, sent)
        topic.send(stream.end())
        _finish(killed, supervisor, topic.count())
    with undisturbed.supervised(tell) as supervisor:
        _finish(undisturbed, supervisor, topic.count())
    return _judge(name, options, topic, undisturbed, killed, began=began)


class _Killer:
    """Kills drivers in mid-batch, with the kills spread over the messages to read."""

    def __init__(
        self,
        run: TemplateRun,
        supervisor: Supervisor,
        options: ChaosOptions,
        messages: int,
        tell: Tell,
    ) -> None:
        self._run = run
        self._supervisor = supervisor
        self._kills = options.kills
        self._messages = messages
        self._tell = tell
        self._source = random.Random(f"{options.seed}/{run.pipeline}")  # noqa: S311

    def run(self) -> None:
        """Kill as often as the options ask for."""
        for number in range(self._kills):
            share = (number + self._source.uniform(0.1, 0.6)) / (self._kills + 2)
            _await_read(self._run, int(share * self._messages))
            moment = self._source.uniform(0.02, 0.98)
            self._kill(moment)
            self._tell(
                f"{self._run.pipeline}: kill {number + 1}/{self._kills}, at "
                f"{moment:.0%} of a batch, {_read_progress(self._run):,} messages read"
            )

    def _kill(self, moment: float) -> None:
        give_up = time.monotonic() + PATIENCE_S
        while time.monotonic() < give_up:
            driver = self._supervisor.await_mid_batch(moment, _MID_BATCH_WAIT_S)
            if driver is not None and driver.is_in_batch:
                self._supervisor.kill(driver)
                return
            if _read_progress(self._run) >= self._messages:
                break
        raise _stuck(f"{self._run.pipeline} had no batch left to be killed in")


def _finish(run: TemplateRun, supervisor: Supervisor, messages: int) -> None:
    """Let a run finish its work, and end its driver."""
    _await_done(run, messages)
    if not supervisor.drain():
        raise _stuck(f"the driver of {run.pipeline} did not drain")


def _await_done(run: TemplateRun, messages: int) -> None:
    """Wait until a run has read this many messages and has no timer that is due."""
    _await_read(run, messages)
    began = time.monotonic()
    waiting = threading.Event()
    with run.connect() as connection:
        given = {"pipeline": run.pipeline}
        while connection.execute(_SQL["due_timers"], given).fetchone() != (0,):
            if time.monotonic() - began > PATIENCE_S:
                raise _stuck(f"{run.pipeline} leaves timers that are due")
            waiting.wait(_POLL_S)


def _await_read(run: TemplateRun, messages: int) -> None:
    waiting = threading.Event()
    last, since = -1, time.monotonic()
    while (now := _read_progress(run)) < messages:
        if now > last:
            last, since = now, time.monotonic()
        elif time.monotonic() - since > PATIENCE_S:
            raise _stuck(f"{run.pipeline} has read {now:,} of {messages:,} messages")
        waiting.wait(_POLL_S)


def _read_progress(run: TemplateRun) -> int:
    return _count(run, "progress")


def _count(run: TemplateRun, statement: str) -> int:
    with run.connect() as connection:
        row = connection.execute(_SQL[statement], {"pipeline": run.pipeline}).fetchone()
    assert row is not None
    return int(row[0])


def _judge(  # noqa: PLR0913 (keyword-only but for the runs)
    name: str,
    options: ChaosOptions,
    topic: _Topic,
    undisturbed: TemplateRun,
    killed: TemplateRun,
    *,
    began: float,
) -> TemplateReport:
    results, failed = [], []
    for run in (undisturbed, killed):
        with run.connect() as connection:
            results.append(read_results(connection, run.pipeline))
            failed += [
                f"{run.directory.name}: {one}"
                for one in verify(connection, run.pipeline).failed
            ]
    replayed = judge_replay(
        run_replay(
            killed.pipeline_file, killed.driver_environment(killed.directory / "replay")
        )
    )
    if replayed.verdict is Verdict.FAILED:
        failed.append(f"killed: {replayed}")
    return TemplateReport(
        template=name,
        kills=options.kills,
        messages=topic.count(),
        undisturbed_batches=_count(undisturbed, "batches"),
        killed_batches=_count(killed, "batches"),
        rows={table: len(rows) for table, rows in results[0].items()},
        differences=tuple(compare_results(*results)),
        failed_checks=tuple(failed),
        seconds=time.monotonic() - began,
    )


def _stuck(what: str) -> FatalError:
    return FatalError(
        "CHAOS_STUCK",
        saw=f"{what}, after {PATIENCE_S:.0f} s.",
        why="The pipeline must go on by itself after every kill.",
        fix="Run again with --keep and read the drivers' logs; if nothing was left "
        "to read, send more events.",
    )
