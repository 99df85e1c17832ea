"""Runs the peers on the benchmarks' topic: Spark, Flink and Quix Streams.

A peer is a program of its own, which prints a line of JSON for each batch. That on
Flink is in Java, because the XA sink of Flink's JDBC connector is; it is compiled when
it is needed. That on Quix Streams runs in an environment of its own.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from tallyweir.schemas.contract import load_contract
from tallyweir.schemas.pipeline.events.source import AVRO
from tallyweir.services.dev.bench.world.bench_world import (
    PARTITIONS,
    TOPIC,
    Rounds,
    checkpoint,
    drop_table,
    failure_told,
    run_program,
    run_timeout_s,
)
from tallyweir.services.dev.bench.world.driver_run import (
    MeasuredBatch,
    Rates,
    check_rows,
    rates_of,
)
from tallyweir.services.local.datasets.page_views import CONTRACT
from tallyweir.services.local.embedded.jars import ensure_jars
from tallyweir.services.local.embedded.java import find_java
from tallyweir.services.local.embedded.state_directory import state_directory
from tallyweir.services.local.embedded.virtual_environment import PEERS_LOCK, install
from tallyweir.services.process.endpoints import Endpoints, child_environment
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.protocol.errors import ConfigurationError

_CONTRACT = "contract.avsc"
_CREATE_TABLE = """
CREATE TABLE {table} (
    event_id text, user_id bigint, page text, country text, viewed_at timestamptz,
    value double precision
)
"""


def run_peer_process(
    command: Sequence[str], environment: Mapping[str, str], *, events: int
) -> list[MeasuredBatch]:
    """Run a peer, which reads ``events``, to its end.

    Raises:
        FatalError: ``BENCH_INCOMPLETE``: the peer failed, or took too long.
    """
    lines = run_program(command, environment, timeout_s=run_timeout_s(events))
    return [MeasuredBatch(**json.loads(line)) for line in lines]


def measure_peer(
    rounds: Rounds,
    table: str,
    run: Callable[[Endpoints, str, int], list[MeasuredBatch]],
    *,
    rows: int,
) -> Rates:
    """Run a peer, check its table, which must have so many rows, and drop it.

    Raises:
        FatalError: The peer failed, or its table holds the wrong rows.
    """
    dsn = rounds.endpoints.home_dsn
    try:
        batches = run(rounds.endpoints, table, rounds.total)
        check_rows([dsn], table, rows=rows, distinct=rounds.distinct)
    finally:
        drop_table(dsn, table)
    return rates_of(batches, rounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Another system that does the same.

    Attributes:
        run: Reads a number of events into a table.
        guarantee: The guarantee that it gives, in words.
        deduplicates: Whether the table holds each event once; otherwise it holds each
            message.
    """

    run: Callable[[Endpoints, str, int], list[MeasuredBatch]]
    guarantee: str
    deduplicates: bool = True


def measure_peers(
    rounds: Rounds, peers: Mapping[str, Peer], say: Callable[[str], None]
) -> tuple[dict[str, Rates], dict[str, str]]:
    """Run peers one after the other.

    Returns:
        The rates of each peer that ran, and what was wrong with the others.
    """
    rates: dict[str, Rates] = {}
    failed: dict[str, str] = {}
    for name, peer in peers.items():
        say(f"running {name}: {peer.guarantee}")
        rows = rounds.distinct if peer.deduplicates else rounds.total
        with failure_told(failed, name, say):
            rates[name] = measure_peer(rounds, f"bench_{name}", peer.run, rows=rows)
            say(f"{name}: {rates[name]}")
    return rates, failed


def _prepare(endpoints: Endpoints, table: str) -> Path:
    """Create a directory with the contract, and the table of page views, for a peer.

    The login has the name of Tallyweir's schema, so Postgres would create the table
    there, next to the ledger, if the statement did not name ``public``.
    """
    directory = state_directory() / "bench" / f"peer-{table}"
    directory.mkdir()
    (directory / _CONTRACT).write_text(load_contract(CONTRACT).text)
    with connect(endpoints.home_dsn, application_name="bench") as connection:
        target = sql.Identifier("public", table)
        connection.execute(sql.SQL(_CREATE_TABLE).format(table=target))
    return directory


def jdbc_url(dsn: str) -> str:
    """Return the JDBC URL of a database, without the login."""
    fields = conninfo_to_dict(dsn)
    return f"jdbc:postgresql://{fields['host']}:{fields['port']}/{fields['dbname']}"


def login_environment(dsn: str) -> dict[str, str]:
    """Return the login of a database as environment variables of a process."""
    fields = conninfo_to_dict(dsn)
    return {"PGUSER": str(fields["user"]), "PGPASSWORD": str(fields["password"])}


class PeerQuery(StrEnum):
    """The peer's queries on the page views; see ``spark_jobs.bench.jdbc_peer``."""

    ROWS = "rows"
    WINDOWS = "windows"
    JOINS = "joins"


#: What Spark does where it is compared alone, and what it guarantees.
_GUARANTEES: Mapping[PeerQuery, str] = {
    PeerQuery.WINDOWS: "Spark dropDuplicatesWithinWatermark and window counts "
    "(RocksDB), complete windows only + JDBC append, at-least-once",
    PeerQuery.JOINS: "Spark dropDuplicatesWithinWatermark and stream-stream join "
    "(RocksDB) + JDBC append, at-least-once",
}


def run_spark_peer(  # noqa: PLR0913 - what its runs differ in
    endpoints: Endpoints,
    table: str,
    events: int,
    *,
    query: PeerQuery,
    topics: Sequence[str] = (TOPIC,),
    payloads: str = AVRO,
) -> list[MeasuredBatch]:
    """Let Spark read the topics, which hold ``events``, to their end.

    Raises:
        FatalError: ``BENCH_INCOMPLETE``: Spark failed.
    """
    environment = child_environment(endpoints)
    jars = ",".join(map(str, ensure_jars("bench")))
    environment["TALLYWEIR_SPARK_JARS"] += f",{jars}"
    environment["PEER_JDBC_URL"] = jdbc_url(endpoints.home_dsn)
    return run_peer_process(
        [
            sys.executable,
            "-m",
            "tallyweir.spark_jobs.bench.jdbc_peer",
            ",".join(topics),
            table,
            query,
            payloads,
        ],
        environment | login_environment(endpoints.home_dsn),
        events=events,
    )


def measure_beside_spark(  # noqa: PLR0913 - what the two benchmarks differ in
    rounds: Rounds,
    table: str,
    batches: Sequence[MeasuredBatch],
    *,
    query: PeerQuery,
    say: Callable[[str], None],
    topics: Sequence[str] = (TOPIC,),
) -> dict[str, object]:
    """Run Spark over the rounds that a driver has read; return both rates and ratios.

    Raises:
        FatalError: ``BENCH_INCOMPLETE``: Spark failed.
    """
    ours = rates_of(batches, rounds)
    say(f"tallyweir: {ours}")
    say("running the peer")
    checkpoint(rounds.endpoints.home_dsn)
    read = run_spark_peer(
        rounds.endpoints, table, rounds.total, query=query, topics=topics
    )
    peer = rates_of(read, rounds)
    say(f"peer: {peer}")
    return {
        **ours.figures(),
        "peer": _GUARANTEES[query],
        "peer_events_per_second": round(peer.warm),
        "peer_cold_events_per_second": round(peer.cold),
        "ratio": round(ours.warm / peer.warm, 2),
        "cold_ratio": round(ours.cold / peer.cold, 2),
    }


_PROGRAM = Path(__file__).with_name("flink") / "FlinkPeer.java"
_JAVA_COMPILER = "jdk.compiler/com.sun.tools.javac.Main"
#: Flink's serializers look into classes of these packages, as its documentation says.
_OPENED_PACKAGES = ("java.lang", "java.time", "java.util", "java.util.concurrent")
#: Enough for the IDs of eight million events in maps of objects.
_HEAP = "6g"
#: How long Java may take to name its modules, or to compile the program.
_JAVA_S = 300.0


class FlinkDeduplication(StrEnum):
    """Where Flink keeps the IDs that it has seen."""

    NONE = "none"
    HEAP = "heap"
    ROCKSDB = "rocksdb"


def run_flink_peer(  # noqa: PLR0913 - what its runs differ in
    endpoints: Endpoints,
    table: str,
    events: int,
    *,
    deduplication: FlinkDeduplication,
    topic: str = TOPIC,
    payloads: str = AVRO,
) -> list[MeasuredBatch]:
    """Let Flink read the topic, which holds ``events``, to its end.

    Raises:
        FatalError: ``BENCH_INCOMPLETE``: Flink failed.
    """
    directory = _prepare(endpoints, table)
    class_path = [directory, *ensure_jars("flink"), *ensure_jars("bench")]
    _compile_flink_program(class_path, directory)
    command = [
        str(find_java()),
        *(f"-Xmx{_HEAP}", "-XX:+UseParallelGC"),
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        *(
            f"--add-opens=java.base/{package}=ALL-UNNAMED"
            for package in _OPENED_PACKAGES
        ),
        *("-classpath", _joined(class_path), _PROGRAM.stem),
        *(endpoints.kafka_bootstrap, topic, str(directory / _CONTRACT)),
        *(jdbc_url(endpoints.home_dsn), table, str(directory / "checkpoints")),
        *(deduplication, payloads),
    ]
    environment = os.environ | login_environment(endpoints.home_dsn)
    return run_peer_process(command, environment, events=events)


def check_java_compiler() -> None:
    """Check, before minutes of measuring, that Java can compile the peer's program.

    Raises:
        ConfigurationError: ``JAVA_COMPILER_MISSING``.
    """
    java = str(find_java())
    modules = run_program([java, "--list-modules"], os.environ, timeout_s=_JAVA_S)
    if not any(module.startswith("jdk.compiler@") for module in modules):
        raise ConfigurationError(
            "JAVA_COMPILER_MISSING",
            saw=f"{java} comes without a compiler.",
            why="The benchmark compiles the program that runs on Flink.",
            fix="Install a full JDK (on Debian: apt-get install "
            "openjdk-17-jdk-headless), or leave out the peers with --no-peers.",
        )


def _compile_flink_program(class_path: list[Path], directory: Path) -> None:
    command = [
        *(str(find_java()), "--module", _JAVA_COMPILER),
        *("-nowarn", "-d", str(directory)),
        *("-classpath", _joined(class_path), str(_PROGRAM)),
    ]
    run_program(command, os.environ, timeout_s=_JAVA_S)


def _joined(class_path: list[Path]) -> str:
    return ":".join(map(str, class_path))


_QUIX_PROGRAM = Path(__file__).with_name("quix_program.py")


def install_quix() -> None:
    """Install Quix Streams apart from Tallyweir's packages, unless it is there.

    Raises:
        SetUpError: pip failed.
    """
    install(PEERS_LOCK, venv=_quix_environment())


def run_quix_peer(endpoints: Endpoints, table: str, events: int) -> list[MeasuredBatch]:
    """Let Quix Streams, once installed, read the topic, which holds ``events``.

    Raises:
        FatalError: ``BENCH_INCOMPLETE``: Quix Streams failed.
    """
    directory = _prepare(endpoints, table)
    database = conninfo_to_dict(endpoints.home_dsn)
    processes = min(os.cpu_count() or 1, PARTITIONS)
    command = [
        *(str(_quix_environment() / "bin" / "python"), "-I", str(_QUIX_PROGRAM)),
        *(endpoints.kafka_bootstrap, TOPIC, str(directory / _CONTRACT)),
        *(str(database[name]) for name in ("host", "port", "dbname")),
        *(table, str(directory / "state"), str(events), str(processes)),
    ]
    environment = os.environ | login_environment(endpoints.home_dsn)
    return run_peer_process(command, environment, events=events)


def _quix_environment() -> Path:
    return state_directory() / "peers"
