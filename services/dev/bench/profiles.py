"""`python -m services.dev.bench.profiles [ROUNDS]`: each profile on one backlog.

For each workload a backlog lies in a topic, and each profile reads all of it in a
pipeline and a process of its own. Profiles take turns, round by round, so that all have
the same machine. Prints one line of JSON for each workload and profile.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import psutil

from services.dev.bench.bench_world import (
    DUPLICATES,
    PAGE_VIEWS,
    BenchPipeline,
    bench_servers,
    drop_table,
    incomplete_run,
    produce_page_views,
    run_timeout_s,
    varied,
)
from services.dev.bench.driver_run import MeasuredBatch, read_batches, running_driver
from services.dev.bench.measured_processes import memory_of
from services.dev.bench.rates import check_rows, check_verified, warm_up
from services.process.endpoints import Endpoints

_PROFILE = "TALLYWEIR_PROFILE"
_NONE = "none"
_ROUNDS = 3
_SEED = 7
_LOOK_S = 1.0
_MEBI = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A backlog, and who reads it.

    Attributes:
        events: How many lie there.
        profiles: That are compared.
        padding: Bytes that an event is longer by.
        keys: Of the pipeline, beside those of all.
    """

    events: int
    profiles: Sequence[str]
    padding: int = 0
    keys: Mapping[str, object] = field(default_factory=dict)


WORKLOADS: Mapping[str, Workload] = {
    "small_events": Workload(
        events=1_500_000, profiles=(_NONE, "memory", "cpu", "streaming")
    ),
    "heavy_rules": Workload(
        events=1_000_000,
        profiles=(_NONE, "cpu"),
        keys={
            "validate": {
                # Regular expressions that look at all of a path, in vain.
                f"PAGE_{number}": f"NOT page RLIKE '(a|b|[c-z])+{number}+(x|y)+z{{2}}$'"
                for number in range(8)
            }
        },
    ),
    "large_events": Workload(events=200_000, profiles=(_NONE, "memory"), padding=2_000),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one run has shown.

    Attributes:
        rate: Events a second, from the first plan to the last commit.
        latency_s: Of the typical batch, from its plan to its commit.
        jvm_mib: Most memory of the JVM at a look, mapped files left out.
        python_mib: The same of the driver's Python and that of its tasks together.
    """

    rate: float
    latency_s: float
    jvm_mib: float
    python_mib: float


def main() -> None:
    """Measure every workload, and print what was found."""
    rounds = int(sys.argv[1]) if sys.argv[1:] else _ROUNDS
    chosen = sys.argv[2:] or list(WORKLOADS)
    with bench_servers() as endpoints:
        distinct = {name: _produce(endpoints, name) for name in chosen}
        first = chosen[0]
        warm_up(
            endpoints, events=WORKLOADS[first].events, say=_say, topic=_topic(first)
        )
        for name, differ in distinct.items():
            for line in measure_profiles(endpoints, name, differ, rounds=rounds):
                sys.stdout.write(json.dumps(line) + "\n")
                sys.stdout.flush()


def _topic(name: str) -> str:
    return f"bench-profiles-{name.replace('_', '-')}"


def _produce(endpoints: Endpoints, name: str) -> int:
    """Produce a workload's backlog; return how many events differ."""
    _say(f"producing {name}")
    workload = WORKLOADS[name]
    return produce_page_views(
        endpoints.kafka_bootstrap,
        events=workload.events,
        duplicates=DUPLICATES,
        seed=_SEED,
        topics=(_topic(name),),
        padding=workload.padding,
    )


def measure_profiles(
    endpoints: Endpoints, name: str, distinct: int, *, rounds: int
) -> list[dict[str, object]]:
    """Read one workload's backlog under each of its profiles, in turns.

    Raises:
        FatalError: A run did not end, or its table does not hold what it must.
    """
    workload = WORKLOADS[name]
    runs: dict[str, list[Run]] = {profile: [] for profile in workload.profiles}
    for turn in range(rounds):
        for profile, found in runs.items():
            pipeline = varied(
                PAGE_VIEWS,
                f"{name}_{profile}_{turn}",
                keys=workload.keys,
                topic=_topic(name),
                settings={} if profile == _NONE else {_PROFILE: profile},
            )
            found.append(_measure(endpoints, pipeline, events=workload.events))
            _say(f"{name}, {profile}: {found[-1]}")
            check_verified(endpoints.home_dsn, pipeline)
            check_rows(endpoints, pipeline, distinct)
            drop_table(endpoints.home_dsn, pipeline.table)
    return [
        {"workload": name, "profile": profile, "runs": rounds, **median_figures(found)}
        for profile, found in runs.items()
    ]


def _measure(endpoints: Endpoints, pipeline: BenchPipeline, *, events: int) -> Run:
    deadline = time.monotonic() + run_timeout_s(events)
    jvm = python = 0.0
    batches: list[MeasuredBatch] = []
    with running_driver(endpoints, pipeline) as driver:
        while sum(batch.read for batch in batches) < events:
            if driver.poll() is not None or time.monotonic() > deadline:
                raise incomplete_run(
                    f"{pipeline.name} did not read its {events} events.",
                    fix="Run the pipeline by hand to see its messages.",
                )
            time.sleep(_LOOK_S)
            now = _weigh(driver, pipeline)
            jvm, python = max(jvm, now[0]), max(python, now[1])
            batches = read_batches(endpoints.home_dsn, pipeline)
    seconds = batches[-1].published_at - batches[0].planned_at
    return Run(
        rate=sum(batch.read for batch in batches) / seconds,
        latency_s=statistics.median(
            batch.published_at - batch.planned_at for batch in batches
        ),
        jvm_mib=jvm,
        python_mib=python,
    )


def _weigh(
    driver: subprocess.Popen[bytes], pipeline: BenchPipeline
) -> tuple[float, float]:
    found = memory_of(psutil.Process(driver.pid), pipeline)
    own = {part: resident.own / _MEBI for part, resident in found.items()}
    return own["jvm"], own["python"] + own["driver"]


def median_figures(runs: Sequence[Run]) -> dict[str, object]:
    """Return the medians of several runs, and each rate in their order."""

    def each(name: str) -> list[float]:
        return [round(getattr(one, name), 2) for one in runs]

    return {
        "events_per_second": round(statistics.median(one.rate for one in runs)),
        "rates": [round(one.rate) for one in runs],
        "batch_latency_s": round(statistics.median(each("latency_s")), 2),
        "jvm_mib": round(statistics.median(each("jvm_mib"))),
        "python_mib": round(statistics.median(each("python_mib"))),
    }


def _say(what: str) -> None:
    sys.stderr.write(what + "\n")


if __name__ == "__main__":
    main()
