"""Times small batches: from sending five events to seeing them in Postgres."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack

import psycopg

from services.dev.bench.bench_world import (
    TOPIC,
    BenchPipeline,
    has_table,
    incomplete_run,
)
from services.local.datasets.page_views import read_page_views
from services.process.endpoints import Endpoints
from services.produce.producer import EventProducer
from sinks.postgres.server.connection import connect

EVENTS_PER_BATCH = 5
#: Batches that warm up the JVM and are not counted.
_WARM_UP_BATCHES = 20
_POLL_S = 0.005
_VISIBLE_TIMEOUT_S = 60.0


def time_small_batches(
    endpoints: Endpoints, pipeline: BenchPipeline, *, batches: int, seed: int
) -> list[float]:
    """Send small batches to a running driver, one at a time; return their seconds.

    Raises:
        FatalError: Events did not become visible in time.
    """
    views = list(
        read_page_views(EVENTS_PER_BATCH * (batches + _WARM_UP_BATCHES), seed=seed)
    )
    producer = EventProducer(endpoints.kafka_bootstrap)
    with ExitStack() as opened:
        opened_readers = [
            opened.enter_context(
                connect(dsn, application_name="bench", autocommit=True)
            )
            for dsn in (endpoints.home_dsn, *pipeline.databases.values())
        ]
        readers = [one for one in opened_readers if has_table(one, pipeline.table)]
        return [
            _send_and_await(
                producer, readers, pipeline.table, views[at : at + EVENTS_PER_BATCH]
            )
            for at in range(0, len(views), EVENTS_PER_BATCH)
        ][_WARM_UP_BATCHES:]


def in_milliseconds(seconds: Sequence[float]) -> dict[str, object]:
    """Summarise latencies by median, 90th percentile and maximum."""
    ordered = sorted(seconds)
    return {
        "latency_p50_ms": round(statistics.median(ordered) * 1000),
        "latency_p90_ms": round(ordered[int(0.9 * len(ordered))] * 1000),
        "latency_max_ms": round(ordered[-1] * 1000),
    }


def _send_and_await(
    producer: EventProducer,
    readers: Sequence[psycopg.Connection[tuple[int, ...]]],
    table: str,
    views: list[tuple[bytes, bytes]],
) -> float:
    statement = psycopg.sql.SQL(
        "SELECT count(*) FROM {} WHERE event_id = ANY(%s)"
    ).format(psycopg.sql.Identifier(table))
    event_ids = [key.decode() for key, _ in views]
    began = time.monotonic()
    for key, payload in views:
        producer.send(TOPIC, key=key, payload=payload)
    producer.flush()
    while time.monotonic() - began < _VISIBLE_TIMEOUT_S:
        found = [
            reader.execute(statement, (event_ids,)).fetchone() for reader in readers
        ]
        if sum(row[0] for row in found if row is not None) == len(views):
            return time.monotonic() - began
        time.sleep(_POLL_S)
    raise incomplete_run(
        f"Events were not visible after {_VISIBLE_TIMEOUT_S:.0f} s.",
        fix="Run the pipeline by hand to see its messages.",
    )
