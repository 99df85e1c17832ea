"""What each guarantee costs: the same events once by ID, once by offset, at least once.

Every variant reads the same topic, one after the other, on the same machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from services.bench.bench_world import (
    EVENTS_PER_SECOND_MIN,
    bench_servers,
    count_rows,
    produce_page_views,
    varied_page_views,
)
from services.bench.driver_run import await_events, running_driver
from services.bench.throughput import DUPLICATES, Rates, rates_of, wrong_result
from services.endpoints import Endpoints

_WITH_IDS = "exactly_once"

#: What each variant changes in the pipeline of page views.
VARIANTS: Mapping[str, Mapping[str, object]] = {
    _WITH_IDS: {},
    "exactly_once_without_ids": {"deduplicate": "off"},
    "at_least_once": {"guarantee": "at_least_once", "deduplicate": "off"},
}


def measure_guarantees(
    *, events: int, seed: int, say: Callable[[str], None]
) -> dict[str, object]:
    """Measure each variant over two rounds of ``events``.

    Raises:
        FatalError: A run did not end, or its table does not hold what it must.
    """
    figures: dict[str, object] = {"events": events, "seed": seed}
    with bench_servers() as endpoints:
        say(f"producing 2 rounds of {events:,} page views")
        distinct = produce_page_views(
            endpoints.kafka_bootstrap,
            events=2 * events,
            duplicates=DUPLICATES,
            seed=seed,
        )
        for variant in VARIANTS:
            say(f"running {variant}")
            rows = distinct if variant == _WITH_IDS else 2 * events
            rates = _measure(endpoints, variant, events, rows)
            figures[variant] = rates.figures()
            say(f"{variant}: {figures[variant]}")
    return figures


def _measure(endpoints: Endpoints, variant: str, events: int, rows: int) -> Rates:
    pipeline = varied_page_views(variant, keys=VARIANTS[variant])
    with running_driver(endpoints, pipeline) as driver:
        batches = await_events(
            driver,
            endpoints.home_dsn,
            pipeline,
            events=2 * events,
            timeout_s=120 + 2 * events / EVENTS_PER_SECOND_MIN,
        )
    found = count_rows(endpoints, pipeline)
    # Nothing was disturbed, so even at least once there is no repeat.
    if found != rows:
        raise wrong_result(f"{pipeline.table} holds {found} rows instead of {rows}.")
    return rates_of(batches, events)
