"""Events per second, deduplicated into Postgres, compared with peers in the same run.

Tallyweir and its peers read the same topic on the same servers with the same cores, one
after the other. The topic holds four rounds of events. A cold JVM reads the first
round, a warm one the last, and each has a rate of its own. A rate is based on wall
time, from the end of one batch to the end of the round's last batch, so that all work
between batches counts. Tallyweir takes only seconds for a round, in which other work
may disturb a shared machine. Tallyweir therefore runs several times, and its figures
are the medians.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

import psycopg

from tallyweir.services.dev.bench.peers.peer_runs import (
    FlinkDeduplication,
    PeerQuery,
    check_java_compiler,
    install_quix,
    run_flink_peer,
    run_quix_peer,
    run_spark_peer,
)
from tallyweir.services.dev.bench.world.bench_world import (
    DUPLICATES,
    PAGE_VIEWS,
    BenchPipeline,
    bench_servers,
    drop_table,
    failure_told,
    produce_rounds,
    varied,
)
from tallyweir.services.dev.bench.world.driver_run import (
    MeasuredBatch,
    Rates,
    check_verified,
    measure_driver,
    rates_of,
    warm_up,
    wrong_result,
)
from tallyweir.services.process.endpoints import Endpoints
from tallyweir.sinks.postgres.server.connection import connect

_ROUNDS = 4
_RUNS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Peer:
    """Another system that does the same.

    Attributes:
        guarantee: The guarantee that it gives, in words.
        run: Reads a number of events into a table.
        deduplicates: Whether the table holds each event once; otherwise it holds each
            message.
    """

    guarantee: str
    run: Callable[[Endpoints, str, int], list[MeasuredBatch]]
    deduplicates: bool = True


def _run_spark(endpoints: Endpoints, table: str, events: int) -> list[MeasuredBatch]:
    return run_spark_peer(endpoints, PeerQuery.ROWS, table, events=events)


def _run_quix(endpoints: Endpoints, table: str, events: int) -> list[MeasuredBatch]:
    return run_quix_peer(endpoints, table, events=events)


def _run_flink(
    deduplication: FlinkDeduplication, endpoints: Endpoints, table: str, events: int
) -> list[MeasuredBatch]:
    return run_flink_peer(endpoints, deduplication, table, events=events)


_PEERS: Mapping[str, _Peer] = {
    "flink_xa_rocksdb": _Peer(
        guarantee="exactly once while Flink's checkpoints last; IDs in RocksDB",
        run=partial(_run_flink, FlinkDeduplication.ROCKSDB),
    ),
    "flink_xa_heap": _Peer(
        guarantee="exactly once while Flink's checkpoints last; IDs in memory",
        run=partial(_run_flink, FlinkDeduplication.HEAP),
    ),
    "spark_jdbc_rocksdb": _Peer(
        guarantee="at least once; IDs in RocksDB", run=_run_spark
    ),
    "quix_at_least_once": _Peer(
        guarantee="at least once; repeats are written again",
        run=_run_quix,
        deduplicates=False,
    ),
}


def measure(
    *, events: int, seed: int, with_peers: bool, say: Callable[[str], None]
) -> dict[str, object]:
    """Measure the product and its peers over four rounds of ``events`` each.

    Raises:
        ConfigurationError: ``JAVA_COMPILER_MISSING``.
        SetUpError: A peer could not be installed.
        FatalError: Tallyweir's run did not end, or its table holds the wrong rows. If
            a peer fails so, it has no figure, and is among the failed ones.
    """
    if with_peers:
        check_java_compiler()
        install_quix()
    total = _ROUNDS * events
    peers: dict[str, Rates] = {}
    failed: dict[str, str] = {}
    with bench_servers() as endpoints:
        distinct = produce_rounds(
            endpoints, events=events, rounds=_ROUNDS, seed=seed, say=say
        )
        warm_up(endpoints, events=total, say=say)
        runs: list[Rates] = []
        for number in range(1, _RUNS + 1):
            say(f"running tallyweir, {number} of {_RUNS}")
            ours = varied(PAGE_VIEWS, f"run_{number}")
            runs.append(_measure_ours(endpoints, ours, events=events, rows=distinct))
            say(f"tallyweir: {runs[-1]}")
        for name, peer in _PEERS.items() if with_peers else ():
            say(f"running {name}: {peer.guarantee}")
            with failure_told(failed, name, say):
                peers[name] = _measure_peer(
                    endpoints, name, events=events, distinct=distinct
                )
                say(f"{name}: {peers[name]}")
            drop_table(endpoints.home_dsn, f"bench_{name}")
    cold = {name: one.cold for name, one in peers.items()}
    warm = {name: one.warm for name, one in peers.items()}
    return {
        "cold": _figures([one.cold for one in runs], cold),
        "warm": _figures([one.warm for one in runs], warm),
        "verified": True,
        "failed": failed,
        "guarantees": {name: _PEERS[name].guarantee for name in peers},
        "events": total,
        "duplicates": DUPLICATES,
        "seed": seed,
    }


def _measure_ours(
    endpoints: Endpoints, pipeline: BenchPipeline, *, events: int, rows: int
) -> Rates:
    rates = measure_driver(endpoints, pipeline, events=events, rounds=_ROUNDS)
    _check_rows(endpoints.home_dsn, pipeline.table, rows, distinct=rows)
    check_verified(endpoints.home_dsn, pipeline)
    drop_table(endpoints.home_dsn, pipeline.table)
    return rates


def _measure_peer(
    endpoints: Endpoints, name: str, *, events: int, distinct: int
) -> Rates:
    peer, table, total = _PEERS[name], f"bench_{name}", _ROUNDS * events
    measured = peer.run(endpoints, table, total)
    rows = distinct if peer.deduplicates else total
    _check_rows(endpoints.home_dsn, table, rows, distinct=distinct)
    return rates_of(measured, events, rounds=_ROUNDS)


def _figures(runs: Sequence[float], peers: Mapping[str, float]) -> dict[str, object]:
    ours = median(runs)
    return {
        "events_per_second": round(ours),
        "runs": [round(rate) for rate in runs],
        "peers": {name: round(rate) for name, rate in peers.items()},
        "ratio": {name: round(ours / rate, 2) for name, rate in peers.items()},
    }


def _check_rows(dsn: str, table: str, rows: int, *, distinct: int) -> None:
    """Check the rows and the distinct IDs: a fast wrong answer is no answer."""
    with connect(dsn, application_name="bench") as connection:
        statement = psycopg.sql.SQL(
            "SELECT count(*), count(DISTINCT event_id) FROM {}"
        ).format(psycopg.sql.Identifier(table))
        found = connection.execute(statement).fetchone()
    if found != (rows, distinct):
        raise wrong_result(
            f"{table} holds {found} rows and distinct IDs instead of "
            f"{(rows, distinct)}."
        )
