"""From a producer's send to a row that everybody sees, while events keep coming.

Events are sent at a steady rate for some time. For each of them the clock runs from
before it is handed to the producer, whose batching counts, until a reader that looks
every few milliseconds finds a row of its partition with its offset or a later one: a
batch becomes visible as a whole, and holds a partition's events without a gap.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import psycopg
from psycopg import sql

from services.bench.bench_world import (
    DUPLICATES,
    PAGE_VIEWS,
    PARTITIONS,
    TOPIC,
    bench_servers,
    produce_page_views,
)
from services.bench.driver_run import await_events, running_driver
from services.bench.rates import check_verified, wrong_result
from services.datasets.page_views import read_page_views
from services.endpoints import Endpoints
from services.ingest.producer import Delivery, EventProducer
from services.ingest.topics import ensure_topic

_WARM_UP_EVENTS = 300_000
_WARM_UP_TIMEOUT_S = 180.0
#: Seconds of the load that are not counted: the JVM compiles what small batches need.
_SETTLING_S = 30.0
_POLL_S = 0.005
#: How long the reader goes on after the last event.
_LAST_TIMEOUT_S = 60.0
#: How far before the newest row that was seen a look begins: rows may fill pages that
#: the table was extended by earlier.
_PAGES_BEFORE = 32

_NEWEST = """
SELECT kafka_partition, max(kafka_offset), (max(ctid)::text::point)[0]::int
FROM {table}
WHERE ctid >= %s::tid
GROUP BY kafka_partition
"""


@dataclass(frozen=True, slots=True)
class _Load:
    """What was sent, and what was seen; times of one clock.

    Attributes:
        sent: When each event was handed over, by partition and offset.
        seen: What a look found that no former one had: partition, offset, when.
    """

    sent: dict[tuple[int, int], float] = field(default_factory=dict)
    seen: list[tuple[int, int, float]] = field(default_factory=list)


def measure_latency(
    *, rate: int, seconds: int, seed: int, say: Callable[[str], None]
) -> dict[str, object]:
    """Measure events at ``rate`` a second for so long.

    Raises:
        FatalError: Events did not become visible, or the result is not right.
    """
    with bench_servers() as endpoints:
        bootstrap = endpoints.kafka_bootstrap
        ensure_topic(bootstrap, TOPIC, partitions=PARTITIONS)
        produce_page_views(
            bootstrap, events=_WARM_UP_EVENTS, duplicates=DUPLICATES, seed=seed
        )
        with running_driver(endpoints, PAGE_VIEWS) as driver:
            say("warming up")
            await_events(
                driver,
                endpoints.home_dsn,
                PAGE_VIEWS,
                events=_WARM_UP_EVENTS,
                timeout_s=_WARM_UP_TIMEOUT_S,
            )
            say(f"sending {rate:,} events/s for {seconds} s")
            load = _run_load(endpoints, rate=rate, seconds=seconds, seed=seed + 1)
        check_verified(endpoints.home_dsn, PAGE_VIEWS)
    latencies = latencies_ms(load.sent, load.seen, settling_s=_SETTLING_S)
    p50, p90, p99 = np.percentile(latencies, [50, 90, 99])
    return {
        "rate": rate,
        "p50_ms": round(p50),
        "p90_ms": round(p90),
        "p99_ms": round(p99),
        "max_ms": round(latencies.max()),
        "seconds": seconds,
        "measured": len(latencies),
        "verified": True,
        "seed": seed,
    }


def latencies_ms(
    sent: dict[tuple[int, int], float],
    seen: list[tuple[int, int, float]],
    *,
    settling_s: float,
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the milliseconds of each event that was sent after the settling.

    Args:
        sent: When, in seconds, by partition and offset.
        seen: Partition, the greatest offset that was visible, and when.
        settling_s: Seconds after the first that are left out.

    Raises:
        FatalError: ``BENCH_WRONG``: an event was never seen.
    """
    begins = min(sent.values()) + settling_s
    parts = []
    for partition in sorted({place for place, _ in sent}):
        mine = sorted((o, at) for (p, o), at in sent.items() if p == partition)
        offsets, sent_at = (np.array(one) for one in zip(*mine, strict=True))
        looks = sorted((o, at) for p, o, at in seen if p == partition)
        if not looks or looks[-1][0] < offsets[-1]:
            raise wrong_result(f"Events of partition {partition} were never seen.")
        visible, seen_at = (np.array(one) for one in zip(*looks, strict=True))
        taken = seen_at[np.searchsorted(visible, offsets)] - sent_at
        parts.append(taken[sent_at >= begins])
    return np.concatenate(parts) * 1000


def _run_load(endpoints: Endpoints, *, rate: int, seconds: int, seed: int) -> _Load:
    load = _Load()
    ended = threading.Event()
    reader = threading.Thread(
        target=_look_until, args=(endpoints.home_dsn, load, ended), daemon=True
    )
    reader.start()
    _send(endpoints.kafka_bootstrap, load, rate=rate, seconds=seconds, seed=seed)
    newest = dict(sorted(load.sent))
    deadline = time.monotonic() + _LAST_TIMEOUT_S
    while reader.is_alive() and time.monotonic() < deadline:
        found = {partition: offset for partition, offset, _ in load.seen}
        if all(found.get(place, -1) >= offset for place, offset in newest.items()):
            break
        time.sleep(_POLL_S)
    ended.set()
    reader.join()
    return load


def _send(bootstrap: str, load: _Load, *, rate: int, seconds: int, seed: int) -> None:
    """Send events, each with an ID of its own, at a steady rate."""
    views = list(read_page_views(rate * seconds, seed=seed))
    producer = EventProducer(bootstrap)

    def report_to(at: float) -> Callable[[Delivery], None]:
        def note(delivery: Delivery) -> None:
            load.sent[delivery.partition, delivery.offset] = at

        return note

    began = time.monotonic()
    for number, (key, payload) in enumerate(views):
        wait_s = began + number / rate - time.monotonic()
        if wait_s > 0:
            time.sleep(wait_s)
        producer.send(
            TOPIC, key=key, payload=payload, on_report=report_to(time.monotonic())
        )
    producer.flush()


def _look_until(dsn: str, load: _Load, ended: threading.Event) -> None:
    newest = sql.SQL(_NEWEST).format(table=sql.Identifier(PAGE_VIEWS.table))
    known: dict[int, int] = {}
    page = 0
    with psycopg.connect(dsn, autocommit=True) as connection:
        while not ended.wait(_POLL_S):
            begin = f"({max(0, page - _PAGES_BEFORE)},0)"
            rows = connection.execute(newest, (begin,)).fetchall()
            now = time.monotonic()
            for partition, offset, last_page in rows:
                page = max(page, last_page)
                if offset > known.get(partition, -1):
                    known[partition] = offset
                    load.seen.append((partition, offset, now))
