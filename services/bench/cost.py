"""What an event costs: processor time by process, and bytes of Postgres' log.

Processor time is that of the processes themselves, by the kernel's account, so it says
where work is and not how long anybody waited. What is left of the cores is idle, or
another program's.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import psutil
import psycopg

from services.bench.bench_world import (
    DUPLICATES,
    PAGE_VIEWS,
    bench_servers,
    incomplete_run,
    produce_rounds,
    run_timeout_s,
)
from services.bench.driver_run import await_events, running_driver
from services.bench.rates import check_verified
from services.embedded.kafka import EmbeddedKafka
from services.embedded.postgres import EmbeddedPostgres
from services.embedded.state_directory import state_directory
from services.endpoints import Endpoints

_ROUNDS = 4
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What was spent until now.

    Attributes:
        events: Read, by the ledger.
        cpu_seconds: By part: broker, JVM, Python of the tasks, of the driver, Postgres.
        log_bytes: Of Postgres' write-ahead log.
        at: Seconds of a clock.
    """

    events: int
    cpu_seconds: Mapping[str, float]
    log_bytes: int
    at: float


def measure_cost(
    *, events: int, seed: int, say: Callable[[str], None]
) -> dict[str, object]:
    """Measure the first and the last of four rounds of ``events`` each.

    Raises:
        FatalError: The run did not end, or ``verify`` finds something.
    """
    with bench_servers() as endpoints:
        produce_rounds(endpoints, events=events, rounds=_ROUNDS, seed=seed, say=say)
        say("running tallyweir")
        with running_driver(endpoints, PAGE_VIEWS) as driver:
            spent = [
                _spend_until(endpoints, driver, events=max(1, rounds * events))
                for rounds in (0, 1, _ROUNDS - 1, _ROUNDS)
            ]
        check_verified(endpoints.home_dsn, PAGE_VIEWS)
    cold, warm = cost_between(*spent[:2]), cost_between(*spent[2:])
    return {
        "cold": cold,
        "warm": warm,
        "verified": True,
        "events": _ROUNDS * events,
        "duplicates": DUPLICATES,
        "seed": seed,
    }


def cost_between(before: Spent, after: Spent) -> dict[str, object]:
    """Return what a million events cost between two looks.

    Raises:
        FatalError: ``BENCH_INCOMPLETE``: no batch ended between them.
    """
    events = after.events - before.events
    if not events:
        raise incomplete_run(
            "No batch ended within a round.",
            fix="Measure more --events: a round must be larger than a batch.",
        )
    seconds = after.at - before.at
    used = {
        part: cpu - before.cpu_seconds[part] for part, cpu in after.cpu_seconds.items()
    }
    capacity = (os.cpu_count() or 1) * seconds
    return {
        "cpu_seconds_per_million": {
            part: round(cpu * _MILLION / events, 2) for part, cpu in used.items()
        },
        "share_of_cores": round(sum(used.values()) / capacity, 2),
        "log_bytes_per_event": round((after.log_bytes - before.log_bytes) / events),
    }


def _spend_until(
    endpoints: Endpoints, driver: subprocess.Popen[bytes], *, events: int
) -> Spent:
    batches = await_events(
        driver,
        endpoints.home_dsn,
        PAGE_VIEWS,
        events=events,
        timeout_s=run_timeout_s(events),
    )
    with psycopg.connect(endpoints.home_dsn) as connection:
        ((log_bytes,),) = connection.execute(
            "SELECT (pg_current_wal_lsn() - '0/0')::bigint"
        ).fetchall()
    return Spent(
        events=sum(batch.read for batch in batches),
        cpu_seconds=_cpu_seconds(psutil.Process(driver.pid)),
        log_bytes=log_bytes,
        at=time.monotonic(),
    )


def _cpu_seconds(driver: psutil.Process) -> dict[str, float]:
    directory = state_directory() / "bench"
    below = driver.children(recursive=True)
    jvms = [process for process in below if process.name() == "java"]
    workers = [process for process in below if process.name() != "java"]
    return {
        "broker": _of_server(EmbeddedKafka(directory / "kafka").daemon.find()),
        "jvm": sum(map(_of_process, jvms)),
        "python": sum(map(_of_process, workers)),
        "driver": _of_process(driver),
        "postgres": _of_server(EmbeddedPostgres(directory / "postgres").daemon.find()),
    }


def _of_server(server: psutil.Process | None) -> float:
    """Add up a server and its sessions, those that have ended too."""
    assert server is not None, "the benchmark's server runs"
    ended = server.cpu_times()
    living = sum(map(_of_process, server.children(recursive=True)))
    return ended.children_user + ended.children_system + _of_process(server) + living


def _of_process(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)
