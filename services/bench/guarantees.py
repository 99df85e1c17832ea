"""What each guarantee costs: the same events once by ID, once by offset, at least once.

Every variant reads the same topic, one after the other, on the same machine; so does
Flink's XA sink, which is exactly once by offset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from services.bench.bench_world import (
    PAGE_VIEWS,
    bench_servers,
    count_rows_in,
    drop_table,
    produce_rounds,
    varied,
)
from services.bench.flink_peer import (
    FlinkDeduplication,
    check_java_compiler,
    run_flink_peer,
)
from services.bench.rates import (
    Rates,
    measure_driver,
    rates_of,
    warm_up,
    wrong_result,
)
from services.endpoints import Endpoints

_WITH_IDS = "exactly_once"
_WITHOUT_IDS = "exactly_once_without_ids"
_PEER = "flink_xa_without_ids"

#: What each variant changes in the pipeline of page views.
VARIANTS: Mapping[str, Mapping[str, object]] = {
    _WITH_IDS: {},
    _WITHOUT_IDS: {"deduplicate": "off"},
    "at_least_once": {"guarantee": "at_least_once", "deduplicate": "off"},
}


def measure_guarantees(
    *, events: int, seed: int, with_peers: bool, say: Callable[[str], None]
) -> dict[str, object]:
    """Measure each variant over two rounds of ``events``.

    Raises:
        ConfigurationError: The peer cannot run here.
        FatalError: A run did not end, or its table does not hold what it must.
    """
    if with_peers:
        check_java_compiler()
    measured: dict[str, Rates] = {}
    with bench_servers() as endpoints:
        distinct = produce_rounds(
            endpoints, events=events, rounds=2, seed=seed, say=say
        )
        warm_up(endpoints, events=2 * events, say=say)
        for variant in VARIANTS:
            say(f"running {variant}")
            rows = distinct if variant == _WITH_IDS else 2 * events
            measured[variant] = _measure(endpoints, variant, events, rows)
            say(f"{variant}: {measured[variant]}")
        if with_peers:
            say(f"running {_PEER}")
            measured[_PEER] = _measure_peer(endpoints, events)
            say(f"{_PEER}: {measured[_PEER]}")
    figures: dict[str, object] = {
        "events": events,
        "seed": seed,
        **{variant: rates.figures() for variant, rates in measured.items()},
    }
    if with_peers:
        ours, peer = measured[_WITHOUT_IDS], measured[_PEER]
        figures["ratio"] = round(ours.warm / peer.warm, 2)
        figures["cold_ratio"] = round(ours.cold / peer.cold, 2)
    return figures


def _measure(endpoints: Endpoints, variant: str, events: int, rows: int) -> Rates:
    pipeline = varied(PAGE_VIEWS, variant, keys=VARIANTS[variant])
    rates = measure_driver(endpoints, pipeline, events=events)
    # Nothing was disturbed, so even at least once there is no repeat.
    _check_rows(endpoints, pipeline.table, rows)
    drop_table(endpoints.home_dsn, pipeline.table)
    return rates


def _measure_peer(endpoints: Endpoints, events: int) -> Rates:
    table = f"bench_{_PEER}"
    batches = run_flink_peer(
        endpoints, FlinkDeduplication.NONE, table, events=2 * events
    )
    _check_rows(endpoints, table, 2 * events)
    return rates_of(batches, events)


def _check_rows(endpoints: Endpoints, table: str, rows: int) -> None:
    found = count_rows_in(endpoints.home_dsn, table)
    if found != rows:
        raise wrong_result(f"{table} holds {found} rows instead of {rows}.")
