"""What a pipeline under measurement uses: memory, seconds by phase, and bytes.

The sources are the process table, the driver's metrics, and Postgres.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

import psutil
from prometheus_client.parser import text_string_to_metric_families

from tallyweir.services.dev.bench.world.bench_world import BenchPipeline, incomplete_run
from tallyweir.services.local.embedded.kafka import EmbeddedKafka
from tallyweir.services.local.embedded.postgres import EmbeddedPostgres
from tallyweir.services.local.embedded.state_directory import state_directory
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.statements import load_statements

#: Parts that are servers, which may have a child process for each session.
SERVERS = ("broker", "postgres")
_KIBI = 1024
_ROLLUP = Path("/proc/self/smaps_rollup")


def processes_of(
    driver: psutil.Process, pipeline: BenchPipeline
) -> dict[str, list[psutil.Process]]:
    """List the processes by part; for a server only the parent of its processes."""
    directory = state_directory() / "bench"
    below = driver.children(recursive=True)
    postgres = [
        EmbeddedPostgres(directory / name).daemon.find()
        for name in ("postgres", *pipeline.databases)
    ]
    return {
        "broker": _running([EmbeddedKafka(directory / "kafka").daemon.find()]),
        "jvm": [process for process in below if _is_java(process)],
        "python": [process for process in below if not _is_java(process)],
        "driver": [driver],
        "postgres": _running(postgres),
    }


def _is_java(process: psutil.Process) -> bool:
    try:
        return process.name() == "java"
    except psutil.NoSuchProcess:
        # A Python worker may end at any time; a JVM does not.
        return False


def _running(servers: list[psutil.Process | None]) -> list[psutil.Process]:
    found = [server for server in servers if server is not None]
    assert len(found) == len(servers), "the benchmark's servers run"
    return found


def memory_of(driver: psutil.Process, pipeline: BenchPipeline) -> Mapping[str, int]:
    """Measure the memory of every part that belongs to no file, in bytes.

    Memory that several processes share counts once. Mapped files are left out: the
    kernel reclaims them when it needs memory.

    Raises:
        FatalError: ``BENCH_INCOMPLETE``: the kernel does not show the memory.
    """
    found = {}
    for part, processes in processes_of(driver, pipeline).items():
        sessions = [
            session
            for process in processes
            if part in SERVERS
            for session in process.children(recursive=True)
        ]
        found[part] = sum(_resident(one.pid) for one in (*processes, *sessions))
    return found


def _resident(process: int) -> int:
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text()
    except ProcessLookupError:
        return 0
    except OSError as refused:
        if isinstance(refused, FileNotFoundError) and _ROLLUP.exists():
            return 0
        raise incomplete_run(
            f"The memory of a process cannot be read: {refused.strerror}.",
            fix="Measure on Linux, as the user who started the servers.",
        ) from refused
    return parse_rollup(text)


def parse_rollup(text: str) -> int:
    """Return the bytes that belong to no file, by ``/proc/PID/smaps_rollup``."""
    sizes = re.findall(r"^Pss_(?:Anon|Shmem): +(\d+) kB", text, re.MULTILINE)
    return _KIBI * sum(map(int, sizes))


_METRICS_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """Sums over the batches that a driver has published.

    Attributes:
        batches: Number of batches.
        read: Number of events in them.
        seconds: Seconds by phase: plan, stage, publish.
    """

    batches: int
    read: int
    seconds: Mapping[str, float]


def read_phases(port: int) -> Phases:
    """Read the phases from a driver that serves its metrics on this machine."""
    connection = HTTPConnection("127.0.0.1", port, timeout=_METRICS_TIMEOUT_S)
    try:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    finally:
        connection.close()
    return parse_phases(text)


def parse_phases(text: str) -> Phases:
    """Parse the phases from metrics in Prometheus' text format."""
    sums: defaultdict[str, float] = defaultdict(float)
    seconds: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            sums[sample.name] += sample.value
            if sample.name == "tallyweir_batch_phase_duration_seconds_sum":
                seconds[sample.labels["phase"]] = sample.value
    # Every batch has each phase once.
    counted = sums["tallyweir_batch_phase_duration_seconds_count"]
    return Phases(
        batches=round(counted / len(seconds)) if seconds else 0,
        read=round(sums["tallyweir_rows_read_total"]),
        seconds=seconds,
    )


def phases_between(before: Phases, after: Phases) -> dict[str, object]:
    """Describe the average batch between two readings.

    Raises:
        FatalError: ``BENCH_INCOMPLETE``: no batch ended between them.
    """
    batches = after.batches - before.batches
    if not batches:
        raise incomplete_run(
            "No batch ended within a round.",
            fix="Measure more --events: a round must be larger than a batch.",
        )
    return {
        "events_per_batch": round((after.read - before.read) / batches),
        "seconds_per_batch": {
            phase: round((seconds - before.seconds.get(phase, 0.0)) / batches, 3)
            for phase, seconds in after.seconds.items()
        },
    }


_SQL = load_statements("tallyweir.services.dev.bench.world", "server_bytes.sql")


def read_log_bytes(dsn: str) -> int:
    """Return how many bytes the server has ever written to its log."""
    return _read_number(dsn, "log_bytes")


def read_catalog_bytes(dsn: str, pipeline: str) -> int:
    """Return the size of a pipeline's seen IDs with indexes; 0 if it has none."""
    return _read_number(dsn, "catalog_bytes", pipeline=pipeline)


def _read_number(dsn: str, statement: str, **values: object) -> int:
    with connect(dsn, application_name="bench") as connection:
        ((number,),) = connection.execute(_SQL[statement], values).fetchall()
    return int(number)
