"""Deduplicated pairs of events of two topics, compared with a peer.

A run has a cold round and a warm one, as in ``throughput``.
"""

from __future__ import annotations

from collections.abc import Callable

from psycopg import sql

from tallyweir.services.dev.bench.peers.peer_runs import (
    PeerQuery,
    measure_beside_spark,
)
from tallyweir.services.dev.bench.world.bench_world import (
    DUPLICATES,
    JOINS,
    LEFT_TOPIC,
    RIGHT_TOPIC,
    bench_servers,
    produce_rounds,
)
from tallyweir.services.dev.bench.world.driver_run import (
    run_driver,
    warm_up,
    wrong_result,
)
from tallyweir.sinks.postgres.server.connection import connect

_PEER_TABLE = "bench_peer_pairs"
_ROUNDS = 2
_TOPICS = (LEFT_TOPIC, RIGHT_TOPIC)

_DIFFERENCES = """
WITH ours AS (SELECT user_id, left_id, left_at, right_id, right_at FROM {ours}),
     peer AS (SELECT user_id, left_id, left_at, right_id, right_at FROM {peer})
SELECT
    (SELECT count(*) FROM ours),
    (SELECT count(*) FROM (SELECT * FROM ours EXCEPT ALL SELECT * FROM peer) AS more),
    (SELECT count(*) FROM (SELECT * FROM peer EXCEPT ALL SELECT * FROM ours) AS less)
"""


def measure(*, events: int, seed: int, say: Callable[[str], None]) -> dict[str, object]:
    """Measure the product and its peer over two rounds of ``events`` each.

    Raises:
        FatalError: A run did not end, or the pairs differ from the peer's.
    """
    with bench_servers() as endpoints:
        rounds = produce_rounds(
            endpoints, events=events, rounds=_ROUNDS, seed=seed, say=say, topics=_TOPICS
        )
        # An event's ID decides its topic, so each topic has about half of the events.
        warm_up(endpoints, events=events // 2, say=say, topic=LEFT_TOPIC)
        say("running tallyweir")
        ours = run_driver(rounds, JOINS)
        rates = measure_beside_spark(
            rounds,
            _PEER_TABLE,
            ours,
            query=PeerQuery.JOINS,
            say=say,
            topics=_TOPICS,
        )
        pairs = _check_pairs(endpoints.home_dsn)
    return {
        **rates,
        "pairs": pairs,
        "events": events,
        "duplicates": DUPLICATES,
        "seed": seed,
    }


def _check_pairs(dsn: str) -> int:
    """Count the pairs, and check that the peer found the same ones."""
    with connect(dsn, application_name="bench") as connection:
        ((pairs, more, fewer),) = connection.execute(
            sql.SQL(_DIFFERENCES).format(
                ours=sql.Identifier(JOINS.table), peer=sql.Identifier(_PEER_TABLE)
            )
        ).fetchall()
    if more or fewer or not pairs:
        raise wrong_result(
            f"Of {pairs} pairs the peer lacks {more}, and it has {fewer} others."
        )
    return int(pairs)
