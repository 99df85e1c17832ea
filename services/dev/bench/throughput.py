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
from functools import partial
from statistics import median

from tallyweir.services.dev.bench.peers.peer_runs import (
    FlinkDeduplication,
    Peer,
    PeerQuery,
    check_java_compiler,
    install_quix,
    measure_peers,
    run_flink_peer,
    run_quix_peer,
    run_spark_peer,
)
from tallyweir.services.dev.bench.world.bench_world import (
    DUPLICATES,
    PAGE_VIEWS,
    bench_servers,
    produce_rounds,
    varied,
)
from tallyweir.services.dev.bench.world.driver_run import (
    Rates,
    measure_table,
    warm_up,
)

_ROUNDS = 4
_RUNS = 3


_PEERS: Mapping[str, Peer] = {
    "flink_xa_rocksdb": Peer(
        guarantee="exactly once while Flink's checkpoints last; IDs in RocksDB",
        run=partial(run_flink_peer, deduplication=FlinkDeduplication.ROCKSDB),
    ),
    "flink_xa_heap": Peer(
        guarantee="exactly once while Flink's checkpoints last; IDs in memory",
        run=partial(run_flink_peer, deduplication=FlinkDeduplication.HEAP),
    ),
    "spark_jdbc_rocksdb": Peer(
        guarantee="at least once; IDs in RocksDB",
        run=partial(run_spark_peer, query=PeerQuery.ROWS),
    ),
    "quix_at_least_once": Peer(
        guarantee="at least once; repeats are written again",
        run=run_quix_peer,
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
    with bench_servers() as endpoints:
        rounds = produce_rounds(
            endpoints, events=events, rounds=_ROUNDS, seed=seed, say=say
        )
        warm_up(endpoints, events=rounds.total, say=say)
        runs: list[Rates] = []
        for number in range(1, _RUNS + 1):
            say(f"running tallyweir, {number} of {_RUNS}")
            ours = varied(PAGE_VIEWS, f"run_{number}")
            runs.append(measure_table(rounds, ours, rows=rounds.distinct))
            say(f"tallyweir: {runs[-1]}")
        peers, failed = measure_peers(rounds, _PEERS if with_peers else {}, say)
    cold = {name: one.cold for name, one in peers.items()}
    warm = {name: one.warm for name, one in peers.items()}
    return {
        "cold": _figures([one.cold for one in runs], cold),
        "warm": _figures([one.warm for one in runs], warm),
        "verified": True,
        "failed": failed,
        "guarantees": {name: _PEERS[name].guarantee for name in peers},
        "events": rounds.total,
        "duplicates": DUPLICATES,
        "seed": seed,
    }


def _figures(runs: Sequence[float], peers: Mapping[str, float]) -> dict[str, object]:
    ours = median(runs)
    return {
        "events_per_second": round(ours),
        "runs": [round(rate) for rate in runs],
        "peers": {name: round(rate) for name, rate in peers.items()},
        "ratio": {name: round(ours / rate, 2) for name, rate in peers.items()},
    }
