"""What the monitor costs a pipeline: `python -m services.dev.bench.monitor_cost`.

A driver works through a backlog while a monitor, whose overview and pipeline page
somebody has open, is stopped and continued every few seconds. So each second with it
has one without it close by, and whatever else the machine does meets both. Beside the
rates stands the processor time of the monitor and of its sessions in Postgres, which
does not depend on what else there is to do.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

import httpx
import psutil

from services.dev.bench.bench_world import (
    PAGE_VIEWS,
    BenchPipeline,
    bench_servers,
    drop_table,
    incomplete_run,
    produce_rounds,
    run_timeout_s,
    varied,
)
from services.dev.bench.driver_run import (
    MeasuredBatch,
    await_events,
    running_driver,
)
from services.dev.bench.rates import check_verified, warm_up
from services.process.endpoints import Endpoints, child_environment
from sinks.postgres.server.connection import connect

_EVENTS = 3_000_000
_RUNS = 4
_SEED = 7
#: Small, so that few of them lie in two turns.
_BATCH = {"TALLYWEIR_BATCH_OFFSETS_MAX": "100000"}
#: Seconds that the monitor is at work, and then stopped.
_TURN_S = 4.0
#: As the page asks: what it opens with, and the bottleneck while it is open.
_OPENS_WITH = ("graph?newest=100", "history?slot_s=10&slots=180")
_BOTTLENECK_EVERY_S = 4.0
_PATIENCE_S = 60.0
_SESSIONS = """
SELECT pid FROM pg_stat_activity WHERE application_name = 'tallyweir monitor'
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Some seconds, by the clock that batches are timed by, with or without it."""

    began: float
    ended: float
    is_watched: bool


@dataclass(slots=True)
class WatchingMonitor:
    """A monitor that takes turns with being stopped.

    Attributes:
        program: Its process.
        dsn: Of the home database.
        looks: That somebody was shown.
        turns: That have ended.
        cpu_seconds: Of its process and its sessions, by process id.
    """

    program: subprocess.Popen[str]
    dsn: str
    looks: int = 0
    turns: list[Turn] = field(default_factory=list)
    cpu_seconds: dict[int, float] = field(default_factory=dict)

    def take_turns(self, ended: threading.Event) -> None:
        """Stop and continue it until the end."""
        is_watched = True
        while not ended.is_set():
            self.program.send_signal(signal.SIGCONT if is_watched else signal.SIGSTOP)
            began = time.time()
            ended.wait(_TURN_S)
            self.turns.append(
                Turn(began=began, ended=time.time(), is_watched=is_watched)
            )
            self.note_cpu()
            is_watched = not is_watched
        self.program.send_signal(signal.SIGCONT)

    def note_cpu(self) -> None:
        """Note what was spent so far; sessions come and go."""
        with connect(self.dsn, application_name="bench") as connection:
            sessions = [pid for (pid,) in connection.execute(_SESSIONS).fetchall()]
        for pid in (self.program.pid, *sessions):
            try:
                times = psutil.Process(pid).cpu_times()
            except psutil.NoSuchProcess:
                continue
            self.cpu_seconds[pid] = times.user + times.system

    def look(self, url: str, pipeline: str, ended: threading.Event) -> None:
        """Read each look, as the overview does, and ask what a pipeline's page asks."""
        page = f"/api/pipelines/{pipeline}"
        asked_at = 0.0
        with (
            httpx.Client(base_url=url, timeout=_PATIENCE_S) as client,
            client.stream("GET", "/api/looks") as looks,
        ):
            for path in _OPENS_WITH:
                client.get(f"{page}/{path}").raise_for_status()
            for line in looks.iter_lines():
                if ended.is_set():
                    return
                if not line.startswith("data: "):
                    continue
                self.looks += 1
                if time.monotonic() - asked_at >= _BOTTLENECK_EVERY_S:
                    asked_at = time.monotonic()
                    client.get(f"{page}/bottleneck").raise_for_status()


def rates_by_turn(
    batches: Sequence[MeasuredBatch], turns: Sequence[Turn]
) -> tuple[float, float]:
    """Return the events a second without and with a monitor.

    A batch counts from the end of the one before it. One that lies in two turns is left
    out, and so is the first one.

    Raises:
        FatalError: ``BENCH_INCOMPLETE``: no batch lies within a turn of one kind.
    """
    events, seconds = {False: 0, True: 0}, {False: 0.0, True: 0.0}
    for before, batch in pairwise(batches):
        for turn in turns:
            if turn.began <= before.published_at and batch.published_at <= turn.ended:
                events[turn.is_watched] += batch.read
                seconds[turn.is_watched] += batch.published_at - before.published_at
    if not all(seconds.values()):
        raise incomplete_run(
            "No batch lies within a turn.",
            fix="Measure on a machine that is less busy.",
        )
    return events[False] / seconds[False], events[True] / seconds[True]


@contextmanager
def _watching(
    endpoints: Endpoints, pipeline: BenchPipeline
) -> Iterator[WatchingMonitor]:
    program = subprocess.Popen(
        [sys.executable, "-m", "services.cli", "monitor", "--port", "0"],
        env=child_environment(endpoints),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    monitor = WatchingMonitor(program=program, dsn=endpoints.home_dsn)
    ended = threading.Event()
    try:
        assert program.stderr is not None
        url = json.loads(program.stderr.readline())["url"]
        # Importing it all is no part of what a look costs.
        monitor.note_cpu()
        before = sum(monitor.cpu_seconds.values())
        threads = [
            threading.Thread(target=monitor.look, args=(url, pipeline.name, ended)),
            threading.Thread(target=monitor.take_turns, args=(ended,)),
        ]
        for thread in threads:
            thread.start()
        try:
            yield monitor
        finally:
            ended.set()
            for thread in reversed(threads):
                thread.join()
            monitor.cpu_seconds[0] = -before
    finally:
        program.terminate()
        program.communicate(timeout=_PATIENCE_S)


def _measure_run(
    endpoints: Endpoints, pipeline: BenchPipeline
) -> tuple[float, float, float]:
    """Return both rates, and the cores that the monitor has used while at work."""
    with running_driver(endpoints, pipeline) as driver:
        # Whoever has the page open sees a pipeline that works already.
        _await(driver, endpoints, pipeline, events=1)
        with _watching(endpoints, pipeline) as monitor:
            batches = _await(driver, endpoints, pipeline, events=_EVENTS)
    at_work = sum(one.ended - one.began for one in monitor.turns if one.is_watched)
    cores = sum(monitor.cpu_seconds.values()) / at_work
    return (*rates_by_turn(batches, monitor.turns), cores)


def _await(
    driver: subprocess.Popen[bytes],
    endpoints: Endpoints,
    pipeline: BenchPipeline,
    *,
    events: int,
) -> list[MeasuredBatch]:
    return await_events(
        driver,
        endpoints.home_dsn,
        pipeline,
        events=events,
        timeout_s=run_timeout_s(events),
    )


def measure_monitor_cost() -> dict[str, object]:
    """Measure some runs, and return the figures.

    Raises:
        FatalError: A run did not end, or ``verify`` finds something.
    """
    runs = []
    with bench_servers() as endpoints:
        produce_rounds(endpoints, events=_EVENTS, rounds=1, seed=_SEED, say=_say)
        warm_up(endpoints, events=_EVENTS, say=_say)
        for number in range(_RUNS):
            pipeline = varied(PAGE_VIEWS, f"watched_{number}", settings=_BATCH)
            runs.append(_measure_run(endpoints, pipeline))
            check_verified(endpoints.home_dsn, pipeline)
            drop_table(endpoints.home_dsn, pipeline.table)
            alone, watched, cores = runs[-1]
            _say(
                f"alone {alone:,.0f}, watched {watched:,.0f} events/s, "
                f"{cores:.3f} cores"
            )
    ratios = sorted(watched / alone for alone, watched, _ in runs)
    return {
        "alone": [round(alone) for alone, _, _ in runs],
        "watched": [round(watched) for _, watched, _ in runs],
        "ratio": round(median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
        "cores": round(median(cores for _, _, cores in runs), 4),
        "of_cores": os.cpu_count(),
        "events": _EVENTS,
        "seed": _SEED,
    }


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


def main() -> None:
    """Measure, and print one JSON object."""
    sys.stdout.write(json.dumps(measure_monitor_cost()) + "\n")


if __name__ == "__main__":
    main()
