"""What each guarantee costs: exactly once by ID, by offset, and at least once.

Every variant reads the same topic on the same machine. So does Flink's XA sink, which
is exactly once by offset. The variants run in turns, because the speed of a machine
varies; the figures are medians.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median

from tallyweir.services.dev.bench.peers.peer_runs import (
    FlinkDeduplication,
    check_java_compiler,
    measure_peer,
    run_flink_peer,
)
from tallyweir.services.dev.bench.world.bench_world import (
    PAGE_VIEWS,
    bench_servers,
    produce_rounds,
    varied,
)
from tallyweir.services.dev.bench.world.driver_run import (
    Rates,
    measure_table,
    median_rates,
    warm_up,
)

_WITH_IDS = "exactly_once"
_WITHOUT_IDS = "exactly_once_without_ids"
_PEER = "flink_xa_without_ids"
#: An odd number, so that one of the turns is the median.
_TURNS = 3
_ROUNDS = 4

#: What each variant changes in the pipeline of page views.
VARIANTS: Mapping[str, Mapping[str, object]] = {
    _WITH_IDS: {},
    _WITHOUT_IDS: {"deduplicate": "off"},
    "at_least_once": {"guarantee": "at_least_once", "deduplicate": "off"},
}


def measure(
    *, events: int, seed: int, with_peers: bool, say: Callable[[str], None]
) -> dict[str, object]:
    """Measure each variant over four rounds of ``events``, in turns.

    Raises:
        ConfigurationError: The peer cannot run here.
        FatalError: A run did not end, or its table holds the wrong rows.
    """
    if with_peers:
        check_java_compiler()
    turns: list[dict[str, Rates]] = []
    with bench_servers() as endpoints:
        rounds = produce_rounds(
            endpoints, events=events, rounds=_ROUNDS, seed=seed, say=say
        )
        warm_up(endpoints, events=rounds.total, say=say)
        for number in range(1, _TURNS + 1):
            turn: dict[str, Rates] = {}
            for variant, keys in VARIANTS.items():
                say(f"running {variant}, {number} of {_TURNS}")
                pipeline = varied(PAGE_VIEWS, f"{variant}_{number}", keys=keys)
                # Nothing interrupts the run, so even at least once repeats no batch.
                rows = rounds.distinct if variant == _WITH_IDS else rounds.total
                turn[variant] = measure_table(rounds, pipeline, rows=rows)
                say(f"{variant}: {turn[variant]}")
            if with_peers:
                say(f"running {_PEER}, {number} of {_TURNS}")
                run = partial(run_flink_peer, deduplication=FlinkDeduplication.NONE)
                turn[_PEER] = measure_peer(
                    rounds, f"bench_{_PEER}_{number}", run, rows=rounds.total
                )
                say(f"{_PEER}: {turn[_PEER]}")
            turns.append(turn)
    return {"events": rounds.total, "seed": seed, **figures_of(turns)}


def figures_of(turns: Sequence[Mapping[str, Rates]]) -> dict[str, object]:
    """Return each variant's medians and runs, and the ratio to the peer."""
    figures: dict[str, object] = {}
    for variant in turns[0]:
        runs = [turn[variant] for turn in turns]
        figures[variant] = {
            **median_rates(runs).figures(),
            "runs": [r.figures() for r in runs],
        }
    if _PEER in turns[0]:
        pairs = [(turn[_WITHOUT_IDS], turn[_PEER]) for turn in turns]
        figures["ratio"] = round(median(our.warm / peer.warm for our, peer in pairs), 2)
        figures["cold_ratio"] = round(
            median(our.cold / peer.cold for our, peer in pairs), 2
        )
    return figures
