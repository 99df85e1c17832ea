"""How cost grows with work: one parameter varies, all others stay at a base point.

Every point is a run of its own over two rounds of events, a cold one and a warm one.
After it the tables must hold each event once, and ``verify`` must find no problem.
Points with the same workload are measured once.

The append table has no key but the event's ID, which differs for each event in every
workload. The keys that vary are therefore those of a window: the number of users
decides how many groups are open at a time. The base of that axis is the windows of
``bench windows``, with all other parameters at the common base point.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace

from tallyweir.services.dev.bench.cost import measure_run
from tallyweir.services.dev.bench.windows import check_counts, read_state
from tallyweir.services.dev.bench.world.bench_world import (
    DUPLICATES,
    PAGE_VIEWS,
    WINDOWS,
    BenchPipeline,
    Rounds,
    bench_servers,
    drop_table,
    dsns_of,
    failure_told,
    produce_page_views,
    varied,
)
from tallyweir.services.dev.bench.world.driver_run import (
    check_rows,
    check_verified,
    warm_up,
)
from tallyweir.services.local.datasets.page_views import USERS
from tallyweir.services.local.embedded.postgres import EmbeddedPostgres
from tallyweir.services.local.embedded.state_directory import state_directory
from tallyweir.services.process.endpoints import Endpoints
from tallyweir.sinks.postgres.server.naming import HOME

_ROUNDS = 2
#: Bytes of a page view without padding.
_PLAIN_BYTES = 81
_PADDED_BYTES = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The parameters of a point; the defaults are the base point.

    Attributes:
        task_slots: Tasks that Spark runs at a time.
        kafka_partitions: Partitions of the topic.
        databases: Databases that hold the rows, including the home.
        branches: Branches in which the home takes the rows of a batch.
        event_bytes: Approximate length of a message.
        window_keys: Users that are counted by window; None if views are appended.
    """

    task_slots: int = 4
    kafka_partitions: int = 4
    databases: int = 1
    branches: int = 1
    event_bytes: int = _PLAIN_BYTES
    window_keys: int | None = None


BASE = Workload()

#: The values of each axis that are measured.
AXES: Mapping[str, tuple[int, ...]] = {
    "task_slots": (1, 2, 4),
    "kafka_partitions": (1, 2, 4, 8),
    "databases": (1, 2, 3),
    "branches": (1, 2, 3),
    "event_bytes": (_PLAIN_BYTES, _PADDED_BYTES),
    "window_keys": (1, 100, USERS, 1_000_000),
}


@dataclass(slots=True, kw_only=True)
class _World:
    """The servers, the topics produced so far, and the points measured so far."""

    endpoints: Endpoints
    #: DSNs of the databases other than the home, by name.
    databases: Mapping[str, str]
    events: int
    seed: int
    say: Callable[[str], None]
    #: By topic.
    rounds: dict[str, Rounds] = field(default_factory=dict)
    measured: dict[Workload, dict[str, object]] = field(default_factory=dict)
    #: What went wrong, by point.
    failed: dict[str, str] = field(default_factory=dict)


def workload_at(axis: str, value: int) -> Workload:
    """Return the base point with one parameter changed."""
    return replace(BASE, **{axis: value})


#: Each workload once: the base point is on several axes.
WORKLOADS = frozenset(
    workload_at(axis, value) for axis, values in AXES.items() for value in values
)


def measure(*, events: int, seed: int, say: Callable[[str], None]) -> dict[str, object]:
    """Measure every point of every axis over two rounds of ``events`` each.

    Raises:
        FatalError: The run at the base point did not end, or its tables do not hold
            each event once. If another point fails so, it only has no figure.
    """
    with bench_servers() as endpoints, _running_participants() as databases:
        world = _World(
            endpoints=endpoints,
            databases=databases,
            events=events,
            seed=seed,
            say=say,
        )
        topic = _topic_of(world, BASE)
        warm_up(endpoints, events=_ROUNDS * events, say=say, topic=topic)
        # Nothing can be compared without the base point, so it must not fail.
        _run(world, BASE)
        axes = {axis: _measure_axis(world, axis) for axis in AXES}
    return {
        "axes": axes,
        "base": asdict(BASE),
        "verified": True,
        "failed": world.failed,
        "cores": os.cpu_count(),
        "events": _ROUNDS * events,
        "duplicates": DUPLICATES,
        "seed": seed,
    }


@contextmanager
def _running_participants() -> Iterator[dict[str, str]]:
    """Start two servers in addition to the home; yield their DSNs by name."""
    with ExitStack() as started:
        databases = {}
        for name in ("p1", "p2"):
            server = EmbeddedPostgres(state_directory() / "bench" / name)
            started.callback(server.stop)
            server.start()
            databases[name] = server.dsn
        yield databases


def _measure_axis(world: _World, axis: str) -> list[dict[str, object]]:
    """Return the figures of every point that did not fail."""
    points = []
    for value in AXES[axis]:
        workload = workload_at(axis, value)
        if workload not in world.measured:
            with failure_told(world.failed, f"{axis} {value}", world.say):
                _run(world, workload)
        if workload in world.measured:
            points.append({"value": value, **world.measured[workload]})
    return points


def _run(world: _World, workload: Workload) -> None:
    topic = _topic_of(world, workload)
    rounds = world.rounds[topic]
    number = len(world.measured) + len(world.failed)
    world.say(f"point {number + 1} of {len(WORKLOADS)}: {workload}")
    pipeline = _pipeline_of(world, workload, topic, number)
    run = measure_run(rounds, pipeline)
    figures = {**run.rates.figures(), **run.warm}
    home, *_ = dsns = dsns_of(world.endpoints, pipeline)
    if workload.window_keys is None:
        check_rows(dsns, pipeline.table, rows=rounds.distinct)
    else:
        check_counts(home, pipeline, rounds.distinct)
        figures["open_groups"] = read_state(home, pipeline).groups
    check_verified(home, pipeline)
    for dsn in dsns:
        drop_table(dsn, pipeline.table)
    world.say(f"{run.rates}")
    world.measured[workload] = figures


def _topic_of(world: _World, workload: Workload) -> str:
    """Return a topic with the workload's events; produce them if it is new."""
    users = workload.window_keys or USERS
    partitions, length = workload.kafka_partitions, workload.event_bytes
    topic = f"bench-scale-{partitions}-{length}-{users}"
    if topic not in world.rounds:
        world.say(f"producing {_ROUNDS * world.events:,} page views to {topic}")
        distinct = produce_page_views(
            world.endpoints.kafka_bootstrap,
            events=_ROUNDS * world.events,
            duplicates=DUPLICATES,
            seed=world.seed,
            topics=[topic],
            partitions=partitions,
            users=users,
            padding=length - _PLAIN_BYTES,
        )
        world.rounds[topic] = Rounds(
            endpoints=world.endpoints,
            events=world.events,
            count=_ROUNDS,
            distinct=distinct,
        )
    return topic


def _pipeline_of(
    world: _World, workload: Workload, topic: str, number: int
) -> BenchPipeline:
    output: dict[str, object] = {}
    others = dict(list(world.databases.items())[: workload.databases - 1])
    if others:
        output |= {"database": [HOME, *others], "shard_by": ["event_id"]}
    if workload.branches > 1:
        output["branches"] = workload.branches
    return varied(
        PAGE_VIEWS if workload.window_keys is None else WINDOWS,
        f"scale_{number}",
        output=output,
        databases=others,
        topic=topic,
        settings={"TALLYWEIR_SPARK_MASTER": f"local[{workload.task_slots}]"},
    )
