"""The benchmarks' own servers, events and programs, and the disk space for them."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from zlib import crc32

import psycopg
import yaml

from tallyweir.services.kafka.topics import ensure_topic
from tallyweir.services.local.datasets.page_views import (
    CONTRACT,
    USERS,
    read_page_views,
)
from tallyweir.services.local.embedded.kafka import EmbeddedKafka
from tallyweir.services.local.embedded.postgres import EmbeddedPostgres
from tallyweir.services.local.embedded.state_directory import exclusive, state_directory
from tallyweir.services.process.endpoints import Endpoints
from tallyweir.services.produce.producer import EventProducer
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.protocol.errors import ConfigurationError, FatalError

TOPIC = "bench-page-views"
TABLE = "bench_page_views"
PARTITIONS = 4
#: The share of messages that repeat an earlier one.
DUPLICATES = 0.02
#: A run that is slower than this fails.
_EVENTS_PER_SECOND_MIN = 10_000
_START_TIMEOUT_S = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPipeline:
    """A pipeline under measurement.

    Attributes:
        name: Its name in the pipeline file.
        file: Path of the pipeline file.
        table: The table that receives its rows.
        databases: DSNs of databases other than the home that may hold rows, by name.
        settings: Extra environment variables of its driver.
    """

    name: str
    file: Path
    table: str
    databases: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)


#: Deduplicated page views in one table of the home database, as the peer writes them.
PAGE_VIEWS = BenchPipeline(
    name="bench-page-views",
    file=Path(__file__).with_name("page-views-append.yaml"),
    table=TABLE,
)

#: Deduplicated page views counted per user and ten seconds.
WINDOWS = BenchPipeline(
    name="bench-windows",
    file=Path(__file__).with_name("page-views-windows.yaml"),
    table="bench_views_by_user",
)

#: Pairs of a user's deduplicated page views, from two topics.
JOINS = BenchPipeline(
    name="bench-joins",
    file=Path(__file__).with_name("page-views-join.yaml"),
    table="bench_view_pairs",
)
LEFT_TOPIC, RIGHT_TOPIC = f"{TOPIC}-left", f"{TOPIC}-right"


def varied(  # noqa: PLR0913 - keyword-only; a pipeline has these parts
    pipeline: BenchPipeline,
    variant: str,
    *,
    keys: Mapping[str, object] | None = None,
    output: Mapping[str, object] | None = None,
    databases: Mapping[str, str] | None = None,
    topic: str = TOPIC,
    settings: Mapping[str, str] | None = None,
) -> BenchPipeline:
    """Write a variant of a pipeline with one output, under a name of its own.

    Args:
        pipeline: The pipeline to start from.
        variant: Name of the variant, in snake case.
        keys: Keys to set in the pipeline.
        output: Keys to set in its output.
        databases: DSNs of the databases that the output names, by name.
        topic: The topic that it reads.
        settings: Extra environment variables of its driver.
    """
    definition = yaml.safe_load(pipeline.file.read_text())
    name = f"bench-{variant.replace('_', '-')}"
    table = f"bench_{variant}"
    definition |= {"pipeline": name, **(keys or {})}
    definition["source"]["topic"] = topic
    ((body,),) = (one.values() for one in definition["outputs"])
    body |= {"table": table, **(output or {})}
    file = state_directory() / "bench" / f"{name}.yaml"
    # The order of fields is that of the columns.
    file.write_text(yaml.safe_dump(definition, sort_keys=False))
    return BenchPipeline(
        name=name,
        file=file,
        table=table,
        databases=databases or {},
        settings=settings or {},
    )


def dsns_of(endpoints: Endpoints, pipeline: BenchPipeline) -> list[str]:
    """Return the databases that a pipeline may write: the home, then the others."""
    return [endpoints.home_dsn, *pipeline.databases.values()]


def drop_table(dsn: str, table: str) -> None:
    """Drop a table, so that the next run finds the disk as the one before did."""
    with connect(dsn, application_name="bench", autocommit=True) as connection:
        statement = psycopg.sql.SQL("DROP TABLE IF EXISTS {}")
        connection.execute(statement.format(psycopg.sql.Identifier(table)))
    checkpoint(dsn)


def checkpoint(dsn: str) -> None:
    """Force a checkpoint, so that the next run begins right after one.

    Postgres reuses the files of its log after a checkpoint, and is slower during one.
    Each run then sees only as many checkpoints as its own length causes.
    """
    with connect(dsn, application_name="bench", autocommit=True) as connection:
        connection.execute("CHECKPOINT")


def settle_catalog(dsn: str) -> None:
    """Vacuum a catalog that was filled within minutes, and force a checkpoint.

    Autovacuum keeps up with a catalog that grows over days. After a catalog was filled
    at once, autovacuum would go through gigabytes of it during the next run.
    """
    with connect(dsn, application_name="bench", autocommit=True) as connection:
        connection.execute("VACUUM")
    checkpoint(dsn)


@contextmanager
def bench_servers() -> Iterator[Endpoints]:
    """Start fresh servers for the benchmark; stop and remove them at the end."""
    with bench_postgres() as dsn:
        kafka = EmbeddedKafka(state_directory() / "bench" / "kafka")
        try:
            kafka.start()
            yield Endpoints(kafka_bootstrap=kafka.bootstrap, home_dsn=dsn)
        finally:
            kafka.stop()


@contextmanager
def bench_postgres() -> Iterator[str]:
    """Start a fresh Postgres server for the benchmark; remove it at the end."""
    directory = state_directory() / "bench"
    # A second benchmark waits: the two would slow each other and share a directory.
    with exclusive(directory.with_name("bench.turn")):
        shutil.rmtree(directory, ignore_errors=True)
        postgres = EmbeddedPostgres(directory / "postgres")
        try:
            postgres.start()
            yield postgres.dsn
        finally:
            postgres.stop()
            shutil.rmtree(directory, ignore_errors=True)


def run_timeout_s(events: int) -> float:
    """Return how long a run of ``events`` may take, including its start."""
    return _START_TIMEOUT_S + events / _EVENTS_PER_SECOND_MIN


def incomplete_run(saw: str, *, fix: str) -> FatalError:
    """Build the error for a run that did not finish and so has no figure."""
    return FatalError(
        "BENCH_INCOMPLETE",
        saw=saw,
        why="An incomplete run is not a measurement.",
        fix=fix,
    )


@contextmanager
def failure_told(
    failed: dict[str, str], part: str, say: Callable[[str], None]
) -> Iterator[None]:
    """Record the failure of one part of a benchmark, and let the other parts go on.

    Args:
        failed: Receives what went wrong, by part.
        part: Name of the part.
        say: Reports the failure at once.
    """
    try:
        yield
    except FatalError as failure:
        failed[part] = f"{failure.code}: {failure.saw}"
        say(f"{part} has no figure, {failed[part]}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """Rounds of events in a topic, which every run of a benchmark reads.

    Attributes:
        endpoints: The benchmark's servers.
        events: Events of each round.
        count: Number of rounds.
        distinct: Distinct events of all rounds.
    """

    endpoints: Endpoints
    events: int
    count: int
    distinct: int

    @property
    def total(self) -> int:
        """Events of all rounds."""
        return self.count * self.events


def produce_rounds(  # noqa: PLR0913 - keyword-only; a run of a benchmark has these
    endpoints: Endpoints,
    *,
    events: int,
    rounds: int,
    seed: int,
    say: Callable[[str], None],
    topics: Sequence[str] = (TOPIC,),
    contract: str = CONTRACT,
) -> Rounds:
    """Produce rounds of page views, some of which are repeats.

    The rounds form one stream: event time must rise, or Spark would drop the later
    rounds as late.
    """
    say(f"producing {rounds} rounds of {events:,} page views")
    distinct = produce_page_views(
        endpoints.kafka_bootstrap,
        events=rounds * events,
        duplicates=DUPLICATES,
        seed=seed,
        topics=topics,
        contract=contract,
    )
    return Rounds(endpoints=endpoints, events=events, count=rounds, distinct=distinct)


def produce_page_views(  # noqa: PLR0913 - as above
    bootstrap: str,
    *,
    events: int,
    duplicates: float,
    seed: int,
    topics: Sequence[str] = (TOPIC,),
    partitions: int = PARTITIONS,
    users: int = USERS,
    padding: int = 0,
    contract: str = CONTRACT,
) -> int:
    """Spread page views over topics by their IDs; count the distinct ones.

    See ``read_page_views`` for ``users``, ``padding`` and ``contract``.
    """
    for topic in topics:
        ensure_topic(bootstrap, topic, partitions=partitions)
    producer = EventProducer(bootstrap)
    distinct: set[bytes] = set()
    views = read_page_views(
        events, duplicates, seed, users=users, padding=padding, contract=contract
    )
    for key, payload in views:
        distinct.add(key)
        topic = topics[crc32(key) % len(topics)]
        producer.send(topic, key=key, payload=payload)
    producer.flush()
    return len(distinct)


_GIB = 1 << 30


def free_bytes(directory: Path) -> int:
    """Return the free bytes of a directory's disk."""
    return shutil.disk_usage(directory).free


def check_room(free: int, needs: Mapping[str, int], *, fix: str) -> None:
    """Refuse a run whose data does not fit on the disk.

    Args:
        free: Bytes that are free.
        needs: Bytes that the run needs, by purpose.
        fix: Tells the operator how to need less.

    Raises:
        ConfigurationError: ``BENCH_ROOM``.
    """
    needed = sum(needs.values())
    if needed <= free:
        return
    parts = ", ".join(f"{_in_gib(size)} for {name}" for name, size in needs.items())
    raise ConfigurationError(
        "BENCH_ROOM",
        saw=f"{_in_gib(free)} of the disk are free; the run needs {_in_gib(needed)}: "
        f"{parts}.",
        why="A full disk would stop the run halfway, and everything else that uses "
        "the disk.",
        fix=fix,
    )


def _in_gib(size: int) -> str:
    return f"{size / _GIB:.1f} GiB"


_COMPLAINT_LENGTH = 2_000


def run_program(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    timeout_s: float,
    task: Mapping[str, object] | None = None,
) -> list[str]:
    """Run a program to its end; return the lines that it prints.

    Args:
        command: The program and its arguments.
        environment: The program's whole environment.
        timeout_s: How long the program may take.
        task: Written to the program's standard input, as JSON.

    Raises:
        FatalError: ``BENCH_INCOMPLETE``: the program failed, or took too long.
    """
    try:
        done = subprocess.run(
            command,
            input=json.dumps(task),
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise incomplete_run(
            f"{_name(command)} did not end in {late.timeout:.0f} s.",
            fix="Measure fewer events, or on a quieter machine.",
        ) from late
    if done.returncode:
        complaint = done.stderr[-_COMPLAINT_LENGTH:]
        raise incomplete_run(
            f"{_name(command)} ended with code {done.returncode}: {complaint}",
            fix="Correct the error that it reports.",
        )
    return done.stdout.splitlines()


def _name(command: Sequence[str]) -> str:
    return " ".join(command)[:200]
