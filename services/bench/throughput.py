"""Events per second, deduplicated into Postgres, beside a peer in the same run.

Both read the same topic on the same servers with the same cores, one after the
other. The topic holds two rounds of events: the first is read by a cold JVM, the
second by a warm one, and the rates are given apart. A rate is wall time, from the end
of one batch to the end of the last one of the round, so that whatever Spark does
between batches counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import psycopg

from services.bench.bench_world import (
    EVENTS_PER_SECOND_MIN,
    PAGE_VIEWS,
    BenchPipeline,
    bench_servers,
    produce_page_views,
)
from services.bench.driver_run import MeasuredBatch, await_events, running_driver
from services.bench.peer_run import PeerQuery, run_peer
from services.endpoints import Endpoints
from sinks.protocol.errors import FatalError

#: The share of messages that repeat an earlier one.
DUPLICATES = 0.02
PEER = "Spark dropDuplicatesWithinWatermark (RocksDB) + JDBC append, at-least-once"
_PEER_TABLE = "bench_peer_page_views"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Events per second of the two rounds."""

    cold: float
    warm: float

    def figures(self) -> dict[str, object]:
        """Give both, rounded."""
        return {
            "events_per_second": round(self.warm),
            "cold_events_per_second": round(self.cold),
        }

    def beside(self, peer: Rates, name: str) -> dict[str, object]:
        """Give the figures of both, with their ratios."""
        return {
            **self.figures(),
            "peer": name,
            "peer_events_per_second": round(peer.warm),
            "peer_cold_events_per_second": round(peer.cold),
            "ratio": round(self.warm / peer.warm, 2),
            "cold_ratio": round(self.cold / peer.cold, 2),
        }


def measure_throughput(
    *, events: int, seed: int, say: Callable[[str], None]
) -> dict[str, object]:
    """Measure the product and its peer over two rounds of ``events`` each.

    Raises:
        FatalError: A run did not end, or its table does not hold each event once.
    """
    rounds = 2
    with bench_servers() as endpoints:
        say(f"producing {rounds} rounds of {events:,} page views")
        # One stream over all rounds: event time must rise, or the peer would drop
        # the second round as late.
        distinct = produce_page_views(
            endpoints.kafka_bootstrap,
            events=rounds * events,
            duplicates=DUPLICATES,
            seed=seed,
        )
        say("running tallyweir")
        ours = measure_driver(endpoints, PAGE_VIEWS, events=events, rounds=rounds)
        _check_distinct(endpoints.home_dsn, PAGE_VIEWS.table, distinct)
        say(f"tallyweir: cold {ours.cold:,.0f}, warm {ours.warm:,.0f} events/s")
        say("running the peer")
        measured = run_peer(
            endpoints, PeerQuery.ROWS, _PEER_TABLE, events=rounds * events
        )
        peer = rates_of(measured, events)
        _check_distinct(endpoints.home_dsn, _PEER_TABLE, distinct)
        say(f"peer: cold {peer.cold:,.0f}, warm {peer.warm:,.0f} events/s")
    return {
        **ours.beside(peer, PEER),
        "events": events,
        "duplicates": DUPLICATES,
        "seed": seed,
    }


def rates_of(batches: Sequence[MeasuredBatch], events: int) -> Rates:
    """Compute the rates of the first and of the second round.

    The cold rate counts from the planning of the first batch. The warm rate counts
    the batches that lie wholly in the second round, from the end of the batch before.
    """
    done = 0
    first_warm = len(batches)
    for number, batch in enumerate(batches):
        if done >= events:
            first_warm = number
            break
        done += batch.read
    cold = batches[:first_warm]
    warm = batches[first_warm:]
    assert cold, "the first round was measured"
    assert warm, "the second round was measured"
    cold_seconds = cold[-1].published_at - cold[0].planned_at
    warm_seconds = warm[-1].published_at - cold[-1].published_at
    return Rates(
        cold=sum(batch.read for batch in cold) / cold_seconds,
        warm=sum(batch.read for batch in warm) / warm_seconds,
    )


def measure_driver(
    endpoints: Endpoints, pipeline: BenchPipeline, *, events: int, rounds: int
) -> Rates:
    """Run a driver over the topic's rounds of ``events`` each.

    Raises:
        FatalError: The run did not end.
    """
    timeout_s = 120 + rounds * events / EVENTS_PER_SECOND_MIN
    with running_driver(endpoints, pipeline) as driver:
        batches = await_events(
            driver,
            endpoints.home_dsn,
            pipeline,
            events=rounds * events,
            timeout_s=timeout_s,
        )
    return rates_of(batches, events)


def _check_distinct(dsn: str, table: str, distinct: int) -> None:
    """A fast wrong answer is no answer."""
    with psycopg.connect(dsn) as connection:
        statement = psycopg.sql.SQL(
            "SELECT count(*), count(DISTINCT event_id) FROM {}"
        ).format(psycopg.sql.Identifier(table))
        found = connection.execute(statement).fetchone()
    if found != (distinct, distinct):
        raise wrong_result(
            f"{table} holds {found} rows and distinct IDs for {distinct} events."
        )


def wrong_result(saw: str) -> FatalError:
    """Say that there is no figure, since what was measured is not right."""
    return FatalError(
        "BENCH_WRONG",
        saw=saw,
        why="The rate of a wrong result means nothing.",
        fix="Report this with the seed.",
    )
