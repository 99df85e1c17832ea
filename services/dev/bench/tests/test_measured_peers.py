"""Peers run one after the other, and one that fails takes no other with it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tallyweir.services.dev.bench.peers import peer_runs
from tallyweir.services.dev.bench.peers.peer_runs import Peer, measure_peers
from tallyweir.services.dev.bench.world.bench_world import Rounds, incomplete_run
from tallyweir.services.dev.bench.world.driver_run import MeasuredBatch, Rates
from tallyweir.services.process.endpoints import Endpoints

_NOWHERE = Endpoints(kafka_bootstrap="", home_dsn="")


def _run(_endpoints: Endpoints, _table: str, _events: int) -> list[MeasuredBatch]:
    return []


def test_a_peer_that_fails_is_told_and_the_others_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The table of one that drops no repeat must have a row for each message."""

    def measure(
        _rounds: Rounds, table: str, _run: Callable[..., object], *, rows: int
    ) -> Rates:
        if table == "bench_broken":
            raise incomplete_run("It stood still.", fix="Look.")
        return Rates(cold=rows, warm=1)

    monkeypatch.setattr(peer_runs, "measure_peer", measure)
    rounds = Rounds(endpoints=_NOWHERE, events=100, count=2, distinct=190)
    peers = {
        "broken": Peer(run=_run, guarantee="none"),
        "exact": Peer(run=_run, guarantee="exactly once"),
        "repeating": Peer(run=_run, guarantee="at least once", deduplicates=False),
    }
    lines: list[str] = []
    rates, failed = measure_peers(rounds, peers, lines.append)
    assert {"exact": 190, "repeating": 200} == {n: one.cold for n, one in rates.items()}
    assert failed == {"broken": "BENCH_INCOMPLETE: It stood still."}
    assert "running exact: exactly once" in lines
