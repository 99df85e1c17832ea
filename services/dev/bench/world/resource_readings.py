"""What a pipeline under measurement uses: memory, seconds by phase, and bytes.

The sources are the process table, the driver's metrics, and Postgres.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
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
from tallyweir.sinks.protocol.errors import FatalError

#: Parts that are servers, which may have a child process for each session.
SERVERS = ("broker", "postgres")
_KIBI = 1024


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Resident:
    """Memory of some processes; memory that several of them share counts once.

    Attributes:
        own: Bytes that belong to no file, including shared memory.
        files: Bytes of mapped files, which the kernel reclaims when it needs memory.
    """

    own: int
    files: int

    def __add__(self, other: Resident) -> Resident:
        return Resident(own=self.own + other.own, files=self.files + other.files)


_NOTHING = Resident(own=0, files=0)


def memory_of(
    driver: psutil.Process, pipeline: BenchPipeline
) -> Mapping[str, Resident]:
    """Measure the memory of every part.

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
        weighed = [_resident(one.pid) for one in (*processes, *sessions)]
        found[part] = sum(weighed, _NOTHING)
    return found


def _resident(process: int) -> Resident:
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except ProcessLookupError:
        return _NOTHING
    except FileNotFoundError as missing:
        if Path("/proc/self/smaps_rollup").exists():
            return _NOTHING
        raise _hidden("The kernel does not report the memory in use.") from missing
    except PermissionError as refused:
        raise _hidden("The memory of a process cannot be read.") from refused
    return parse_rollup(lines)


def _hidden(saw: str) -> FatalError:
    return incomplete_run(
        saw, fix="Measure on Linux, as the user who started the servers."
    )


def parse_rollup(lines: Iterable[str]) -> Resident:
    """Parse the lines of ``/proc/PID/smaps_rollup``."""
    sizes = {
        name: int(rest.split()[0]) * _KIBI
        for name, _, rest in (line.partition(":") for line in lines)
        if name.startswith("Pss_")
    }
    return Resident(
        own=sizes.get("Pss_Anon", 0) + sizes.get("Pss_Shmem", 0),
        files=sizes.get("Pss_File", 0),
    )


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
