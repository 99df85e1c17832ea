"""Deduplicated, windowed counts with 100,000 live groups, compared with a peer.

A run has a cold round and a warm one, as in ``throughput``. After each quarter of a
round the benchmark measures the state of the windows, which must not grow with the
number of windows that have closed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from psycopg import sql

from tallyweir.services.dev.bench.peers.peer_runs import (
    PeerQuery,
    measure_beside_spark,
)
from tallyweir.services.dev.bench.world.bench_world import (
    DUPLICATES,
    WINDOWS,
    BenchPipeline,
    bench_servers,
    produce_rounds,
)
from tallyweir.services.dev.bench.world.driver_run import (
    run_driver,
    warm_up,
    wrong_result,
)
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.naming import state_table

_PEER_TABLE = "bench_peer_windows"
_ROUNDS = 2
_LOOKS_PER_ROUND = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSize:
    """The size of the open windows' state in the home database."""

    groups: int
    bytes: int


def measure(*, events: int, seed: int, say: Callable[[str], None]) -> dict[str, object]:
    """Measure the product and its peer over two rounds of ``events`` each.

    Raises:
        FatalError: A run did not end, or the windows do not count each event once.
    """
    with bench_servers() as endpoints:
        rounds = produce_rounds(
            endpoints, events=events, rounds=_ROUNDS, seed=seed, say=say
        )
        warm_up(endpoints, events=rounds.total, say=say)
        say("running tallyweir")
        states: list[StateSize] = []
        ours = run_driver(
            rounds,
            WINDOWS,
            looks=_ROUNDS * _LOOKS_PER_ROUND,
            look=lambda: states.append(read_state(endpoints.home_dsn, WINDOWS)),
        )
        windows = check_counts(endpoints.home_dsn, WINDOWS, rounds.distinct)
        rates = measure_beside_spark(
            rounds, _PEER_TABLE, ours, query=PeerQuery.WINDOWS, say=say
        )
        _check_peer(endpoints.home_dsn)
    return {
        **rates,
        "windows": windows,
        "live_groups": [state.groups for state in states],
        "state_bytes": [state.bytes for state in states],
        "events": events,
        "duplicates": DUPLICATES,
        "seed": seed,
    }


def read_state(dsn: str, pipeline: BenchPipeline) -> StateSize:
    """Measure the state that a pipeline keeps for its open windows."""
    with connect(dsn, application_name="bench") as connection:
        numbers = "SELECT pipeline_number FROM tallyweir.pipeline WHERE pipeline = %s"
        ((number,),) = connection.execute(numbers, (pipeline.name,)).fetchall()
        state = state_table(number, pipeline.table)
        ((groups, size),) = connection.execute(
            sql.SQL("SELECT count(*), pg_total_relation_size({}) FROM {}").format(
                sql.Literal(state.as_string(connection)), state
            )
        ).fetchall()
    return StateSize(groups=groups, bytes=size)


def check_counts(dsn: str, pipeline: BenchPipeline, distinct: int) -> int:
    """Count the windows, and check that together they count each event once.

    Raises:
        FatalError: Their counts do not add up to the distinct events.
    """
    with connect(dsn, application_name="bench") as connection:
        ((counted, windows),) = connection.execute(
            sql.SQL("SELECT sum(views), count(DISTINCT window_start) FROM {}").format(
                sql.Identifier(pipeline.table)
            )
        ).fetchall()
    if counted != distinct:
        raise wrong_result(f"The windows count {counted} of {distinct} events.")
    return int(windows)


def _check_peer(dsn: str) -> None:
    with connect(dsn, application_name="bench") as connection:
        ((rows, others),) = connection.execute(
            sql.SQL(
                "SELECT count(*), count(*) FILTER (WHERE peer.views IS DISTINCT FROM "
                "ours.views) FROM {peer} AS peer LEFT JOIN {ours} AS ours "
                "USING (window_start, user_id)"
            ).format(
                peer=sql.Identifier(_PEER_TABLE), ours=sql.Identifier(WINDOWS.table)
            )
        ).fetchall()
    if others or not rows:
        raise wrong_result(f"Of {rows} windows of the peer {others} have other counts.")
