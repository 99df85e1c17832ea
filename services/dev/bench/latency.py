"""Latency from a producer's send to a visible row, under a steady load.

The benchmark sends events at a steady rate for some time. The clock of an event starts
before the event is handed to the producer, so the producer's batching counts. The clock
stops when a reader that looks every few milliseconds finds a row of the event's
partition with its offset or a later one. A later one is enough, because a batch becomes
visible as a whole, and holds a partition's events without a gap.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from psycopg import sql

from tallyweir.services.dev.bench.world.bench_world import (
    DUPLICATES,
    PAGE_VIEWS,
    PARTITIONS,
    TOPIC,
    bench_servers,
    produce_page_views,
)
from tallyweir.services.dev.bench.world.driver_run import (
    await_events,
    check_verified,
    running_driver,
    wrong_result,
)
from tallyweir.services.kafka.topics import ensure_topic
from tallyweir.services.local.datasets.page_views import read_page_views
from tallyweir.services.process.endpoints import Endpoints
from tallyweir.services.produce.producer import Delivery, EventProducer
from tallyweir.sinks.postgres.server.connection import connect

_WARM_UP_EVENTS = 300_000
#: Seconds at the start of the load that are not counted: the JVM compiles what small
#: batches need.
_SETTLING_S = 30.0
#: Length of the spans of the load that are described one by one.
_STEP_S = 5.0
_POLL_S = 0.005
#: How long the reader goes on after the last event.
_LAST_TIMEOUT_S = 60.0
#: How many pages before the newest known row a look begins: Postgres may also put new
#: rows into pages by which it extended the table earlier.
_PAGES_BEFORE = 32

_Numbers = np.ndarray[tuple[int], np.dtype[np.float64]]

_NEWEST = """
SELECT kafka_partition, max(kafka_offset), (max(ctid)::text::point)[0]::int
FROM {table}
WHERE ctid >= %s::tid
GROUP BY kafka_partition
"""


@dataclass(frozen=True, slots=True)
class _Load:
    """Events that were sent and seen, with times of one clock.

    Attributes:
        sent: When each event was handed to the producer, by partition and offset.
        newest: The last offset that was sent to each partition.
        visible: The greatest offset of each partition that a look has found.
        seen: Each greatest offset that a look found first: partition, offset, time.
    """

    sent: dict[tuple[int, int], float] = field(default_factory=dict)
    newest: dict[int, int] = field(default_factory=dict)
    visible: dict[int, int] = field(default_factory=dict)
    seen: list[tuple[int, int, float]] = field(default_factory=list)


def measure(
    *, rate: int, seconds: int, seed: int, say: Callable[[str], None]
) -> dict[str, object]:
    """Measure ``rate`` events per second for ``seconds``.

    Raises:
        FatalError: Events did not become visible, or the result is wrong.
    """
    with bench_servers() as endpoints:
        bootstrap = endpoints.kafka_bootstrap
        ensure_topic(bootstrap, TOPIC, partitions=PARTITIONS)
        produce_page_views(
            bootstrap, events=_WARM_UP_EVENTS, duplicates=DUPLICATES, seed=seed
        )
        with running_driver(endpoints, PAGE_VIEWS) as driver:
            say("warming up")
            await_events(driver, endpoints.home_dsn, PAGE_VIEWS, events=_WARM_UP_EVENTS)
            say(f"sending {rate:,} events/s for {seconds} s")
            load = _run_load(endpoints, rate=rate, seconds=seconds, seed=seed + 1)
        check_verified(endpoints.home_dsn, PAGE_VIEWS)
    latencies = latencies_of(load.sent, load.seen)
    settled = latencies.between(_SETTLING_S, np.inf)
    return {
        "rate": rate,
        **settled.figures(),
        "seconds": seconds,
        "settling_seconds": _SETTLING_S,
        "measured": len(settled.milliseconds),
        "over_time": latencies.over_time(_STEP_S),
        "verified": True,
        "seed": seed,
    }


@dataclass(frozen=True, slots=True)
class Latencies:
    """The latency of each event.

    Attributes:
        sent_s: When each event was sent, in seconds after the first one.
        milliseconds: Time until each event was visible.
    """

    sent_s: _Numbers
    milliseconds: _Numbers

    def between(self, begin_s: float, end_s: float) -> Latencies:
        """Select the events that were sent from ``begin_s`` on and before ``end_s``."""
        kept = (self.sent_s >= begin_s) & (self.sent_s < end_s)
        return Latencies(self.sent_s[kept], self.milliseconds[kept])

    def figures(self) -> dict[str, int]:
        """Summarise the latencies by three percentiles and the maximum."""
        p50, p90, p99 = np.percentile(self.milliseconds, [50, 90, 99])
        return {
            "p50_ms": round(p50),
            "p90_ms": round(p90),
            "p99_ms": round(p99),
            "max_ms": round(self.milliseconds.max()),
        }

    def over_time(self, step_s: float) -> list[dict[str, float]]:
        """Summarise each span of ``step_s`` seconds in which events were sent."""
        spans = []
        for begin_s in np.arange(0.0, self.sent_s.max() + step_s, step_s):
            span = self.between(begin_s, begin_s + step_s)
            if len(span.sent_s):
                spans.append({"second": float(begin_s), **span.figures()})
        return spans


def latencies_of(
    sent: dict[tuple[int, int], float], seen: list[tuple[int, int, float]]
) -> Latencies:
    """Return the latency of each event that was sent.

    Args:
        sent: When each event was sent, in seconds, by partition and offset.
        seen: Partition, greatest visible offset, and when a look found it.

    Raises:
        FatalError: ``BENCH_WRONG``: an event was never seen.
    """
    began = min(sent.values())
    moments, parts = [], []
    for partition in sorted({place for place, _ in sent}):
        mine = sorted((o, at) for (p, o), at in sent.items() if p == partition)
        offsets, sent_at = (np.array(one) for one in zip(*mine, strict=True))
        looks = sorted((o, at) for p, o, at in seen if p == partition)
        if not looks or looks[-1][0] < offsets[-1]:
            raise wrong_result(f"Events of partition {partition} were never seen.")
        visible, seen_at = (np.array(one) for one in zip(*looks, strict=True))
        moments.append(sent_at - began)
        parts.append(seen_at[np.searchsorted(visible, offsets)] - sent_at)
    return Latencies(np.concatenate(moments), np.concatenate(parts) * 1000)


def _run_load(endpoints: Endpoints, *, rate: int, seconds: int, seed: int) -> _Load:
    load = _Load()
    ended = threading.Event()
    reader = threading.Thread(
        target=_look_until, args=(endpoints.home_dsn, load, ended), daemon=True
    )
    # Python's garbage collector takes ever longer as records grow. While it ran, the
    # benchmark neither sent events nor looked for rows, and the time counted as the
    # pipeline's: 99 % rose from 120 to 400 ms in ten minutes.
    gc.disable()
    reader.start()
    _send(endpoints.kafka_bootstrap, load, rate=rate, seconds=seconds, seed=seed)
    deadline = time.monotonic() + _LAST_TIMEOUT_S
    while reader.is_alive() and time.monotonic() < deadline:
        newest = load.newest.items()
        if all(load.visible.get(place, -1) >= offset for place, offset in newest):
            break
        time.sleep(_POLL_S)
    ended.set()
    reader.join()
    gc.enable()
    return load


def _send(bootstrap: str, load: _Load, *, rate: int, seconds: int, seed: int) -> None:
    """Send events with distinct IDs at a steady rate."""
    views = list(read_page_views(rate * seconds, seed=seed))
    producer = EventProducer(bootstrap)

    def report_to(at: float) -> Callable[[Delivery], None]:
        def note(delivery: Delivery) -> None:
            load.sent[delivery.partition, delivery.offset] = at
            load.newest[delivery.partition] = delivery.offset

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
    page = 0
    with connect(dsn, application_name="bench", autocommit=True) as connection:
        while not ended.wait(_POLL_S):
            begin = f"({max(0, page - _PAGES_BEFORE)},0)"
            rows = connection.execute(newest, (begin,)).fetchall()
            now = time.monotonic()
            for partition, offset, last_page in rows:
                page = max(page, last_page)
                if offset > load.visible.get(partition, -1):
                    load.visible[partition] = offset
                    load.seen.append((partition, offset, now))
