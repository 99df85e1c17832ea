"""What an event costs: processor time by process, and bytes of a log.

The benchmark measures a run of a pipeline between its rounds. Processor time is what
the kernel counts for each process, so it shows where work is done and not how long a
process waited. The rest of the cores' time is idle, or another program's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import psutil

from tallyweir.services.dev.bench.world.bench_world import (
    DUPLICATES,
    PAGE_VIEWS,
    BenchPipeline,
    Rounds,
    bench_servers,
    dsns_of,
    incomplete_run,
    produce_rounds,
)
from tallyweir.services.dev.bench.world.driver_run import (
    Rates,
    await_events,
    check_verified,
    rates_of,
    read_batches,
    running_driver,
    warm_up,
)
from tallyweir.services.dev.bench.world.resource_readings import (
    SERVERS,
    Phases,
    phases_between,
    processes_of,
    read_log_bytes,
    read_phases,
)
from tallyweir.services.local.embedded.embedded_server import free_port
from tallyweir.services.process.driver_process import DriverProcess
from tallyweir.services.process.endpoints import Endpoints
from tallyweir.sinks.metrics_endpoint import PORT_VARIABLE

_ROUNDS = 4
_BATCHES_PER_ROUND = 4
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """The costs of a run until one moment.

    Attributes:
        events: Events that were read, by the ledger.
        cpu_seconds: Processor time by part: broker, JVM, Python of the tasks, Python of
            the driver, Postgres.
        log_bytes: Bytes in Postgres' write-ahead log.
        phases: Phases of the batches, by the driver.
        at: The moment, in seconds of a monotonic clock.
    """

    events: int
    cpu_seconds: Mapping[str, float]
    log_bytes: int
    phases: Phases
    at: float


def measure(*, events: int, seed: int, say: Callable[[str], None]) -> dict[str, object]:
    """Measure the first and the last of four rounds of ``events`` each.

    Raises:
        FatalError: The run did not end, or ``verify`` finds a problem.
    """
    with bench_servers() as endpoints:
        rounds = produce_rounds(
            endpoints, events=events, rounds=_ROUNDS, seed=seed, say=say
        )
        warm_up(endpoints, events=rounds.total, say=say)
        say("running tallyweir")
        run = measure_run(rounds, PAGE_VIEWS)
        check_verified(endpoints.home_dsn, PAGE_VIEWS)
    return {
        "cold": run.cold,
        "warm": run.warm,
        "verified": True,
        "events": rounds.total,
        "duplicates": DUPLICATES,
        "seed": seed,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class CostedRun:
    """A run of a pipeline: its rates, and the cost of an event."""

    rates: Rates
    cold: dict[str, object]
    warm: dict[str, object]


def measure_run(rounds: Rounds, pipeline: BenchPipeline) -> CostedRun:
    """Run a driver over the rounds; measure the first one and the last.

    A round has several batches, so that averages mean something.

    Raises:
        FatalError: The run did not end.
    """
    endpoints, events = rounds.endpoints, rounds.events
    port = free_port()
    settings = {
        **pipeline.settings,
        PORT_VARIABLE: str(port),
        "TALLYWEIR_BATCH_OFFSETS_MAX": str(max(1, events // _BATCHES_PER_ROUND)),
    }
    with running_driver(endpoints, replace(pipeline, settings=settings)) as driver:
        spent = [
            _spend_until(endpoints, pipeline, driver, port, events=reached)
            for reached in (1, events, rounds.total - events, rounds.total)
        ]
        batches = read_batches(endpoints.home_dsn, pipeline)
    return CostedRun(
        rates=rates_of(batches, rounds),
        cold=cost_between(*spent[:2]),
        warm=cost_between(*spent[2:]),
    )


def cost_between(before: Spent, after: Spent) -> dict[str, object]:
    """Return the cost of events between two moments.

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
        **phases_between(before.phases, after.phases),
    }


def _spend_until(
    endpoints: Endpoints,
    pipeline: BenchPipeline,
    driver: DriverProcess,
    port: int,
    *,
    events: int,
) -> Spent:
    batches = await_events(driver, endpoints.home_dsn, pipeline, events=events)
    return Spent(
        events=sum(batch.read for batch in batches),
        cpu_seconds=_cpu_seconds(psutil.Process(driver.pid), pipeline),
        log_bytes=sum(map(read_log_bytes, dsns_of(endpoints, pipeline))),
        phases=read_phases(port),
        at=time.monotonic(),
    )


def _cpu_seconds(driver: psutil.Process, pipeline: BenchPipeline) -> dict[str, float]:
    return {
        part: sum(map(_of_server if part in SERVERS else _of_process, processes))
        for part, processes in processes_of(driver, pipeline).items()
    }


def _of_server(server: psutil.Process) -> float:
    """Add up the time of a server and its sessions, including ended ones."""
    ended = server.cpu_times()
    living = sum(map(_of_process, server.children(recursive=True)))
    return float(
        ended.children_user + ended.children_system + _of_process(server) + living
    )


def _of_process(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)
