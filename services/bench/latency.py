"""From sending five events to seeing them in Postgres, once the JVM is warm."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import psycopg

from services.bench.bench_world import (
    PARTITIONS,
    TABLE,
    TOPIC,
    bench_servers,
    produce_page_views,
)
from services.bench.driver_run import await_events, running_driver
from services.datasets.page_views import read_page_views
from services.ingest.producer import EventProducer
from services.ingest.topics import ensure_topic
from sinks.protocol.errors import FatalError

EVENTS_PER_BATCH = 5
#: Batches that warm the JVM up and are not counted.
_WARM_UP_BATCHES = 20
_POLL_S = 0.005
_VISIBLE_TIMEOUT_S = 60.0


def measure_latency(
    *, batches: int, seed: int, say: Callable[[str], None]
) -> dict[str, object]:
    """Measure ``batches`` small batches, one at a time.

    Raises:
        FatalError: Events did not become visible in time.
    """
    with bench_servers() as endpoints:
        ensure_topic(endpoints.kafka_bootstrap, TOPIC, partitions=PARTITIONS)
        warm_up = produce_page_views(
            endpoints.kafka_bootstrap, events=20_000, duplicates=0.0, seed=seed
        )
        with running_driver(endpoints) as driver:
            say("warming up")
            await_events(driver, endpoints.home_dsn, events=warm_up, timeout_s=180)
            views = list(
                read_page_views(
                    EVENTS_PER_BATCH * (batches + _WARM_UP_BATCHES), seed=seed + 1
                )
            )
            with psycopg.connect(endpoints.home_dsn, autocommit=True) as reader:
                producer = EventProducer(endpoints.kafka_bootstrap)
                seconds = [
                    _send_and_await(producer, reader, views[at : at + EVENTS_PER_BATCH])
                    for at in range(0, len(views), EVENTS_PER_BATCH)
                ][_WARM_UP_BATCHES:]
    ordered = sorted(seconds)
    return {
        "latency_p50_ms": round(statistics.median(ordered) * 1000),
        "latency_p90_ms": round(ordered[int(0.9 * len(ordered))] * 1000),
        "latency_max_ms": round(ordered[-1] * 1000),
        "events_per_batch": EVENTS_PER_BATCH,
        "batches": batches,
        "seed": seed,
    }


def _send_and_await(
    producer: EventProducer,
    reader: psycopg.Connection[tuple[object, ...]],
    views: list[tuple[bytes, bytes]],
) -> float:
    statement = psycopg.sql.SQL(
        "SELECT count(*) FROM {} WHERE event_id = ANY(%s)"
    ).format(psycopg.sql.Identifier(TABLE))
    event_ids = [key.decode() for key, _ in views]
    began = time.monotonic()
    for key, payload in views:
        producer.send(TOPIC, key=key, payload=payload)
    producer.flush()
    while time.monotonic() - began < _VISIBLE_TIMEOUT_S:
        found = reader.execute(statement, (event_ids,)).fetchone()
        if found == (len(views),):
            return time.monotonic() - began
        time.sleep(_POLL_S)
    raise FatalError(
        "BENCH_INCOMPLETE",
        saw=f"Events were not visible after {_VISIBLE_TIMEOUT_S:.0f} s.",
        why="A part of a run is no measurement.",
        fix="Run the pipeline by hand to see its messages.",
    )
