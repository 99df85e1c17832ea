"""What several databases cost: the same events in one, in three, and in branches.

The variants read the same topic on the same machine, one after the other. Each database
is a server of its own, as it would be in production.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from services.dev.bench.bench_world import (
    PAGE_VIEWS,
    BenchPipeline,
    bench_servers,
    count_rows,
    produce_rounds,
    varied,
)
from services.dev.bench.driver_run import await_events, running_driver
from services.dev.bench.rates import check_rows, rates_of
from services.dev.bench.small_batches import in_milliseconds, time_small_batches
from services.local.embedded.postgres import EmbeddedPostgres
from services.local.embedded.state_directory import state_directory

_SMALL_BATCHES = 40
_RUN_TIMEOUT_S = 900.0
_OTHERS = ("p1", "p2")

#: What each variant adds to the output of the plain pipeline.
VARIANTS: Mapping[str, Mapping[str, object]] = {
    "one_database": {},
    "one_participant": {"database": "p1"},
    "three_databases": {"database": ["home", *_OTHERS], "shard_by": ["event_id"]},
    "two_branches": {"branches": 2},
}


def measure_databases(
    *, events: int, seed: int, say: Callable[[str], None]
) -> dict[str, object]:
    """Measure each variant over two rounds of ``events``, then small batches.

    Raises:
        FatalError: A run did not end, or its tables do not hold each event once.
    """
    figures: dict[str, object] = {"events": events, "seed": seed}
    with bench_servers() as endpoints, running_participants() as databases:
        distinct = produce_rounds(
            endpoints, events=events, rounds=2, seed=seed, say=say
        )
        sent = 2 * events
        for number, variant in enumerate(VARIANTS):
            say(f"running {variant}")
            pipeline = _pipeline_of(variant, databases)
            with running_driver(endpoints, pipeline) as driver:
                batches = await_events(
                    driver,
                    endpoints.home_dsn,
                    pipeline,
                    events=sent,
                    timeout_s=_RUN_TIMEOUT_S,
                )
                check_rows(endpoints, pipeline, distinct)
                rates = rates_of(batches, events)
                seconds = time_small_batches(
                    endpoints,
                    pipeline,
                    batches=_SMALL_BATCHES,
                    seed=seed + 1 + number,
                )
            # The next variant reads the events of the small batches as well.
            small = count_rows(endpoints, pipeline) - distinct
            sent += small
            distinct += small
            figures[variant] = {
                **rates.figures(),
                **in_milliseconds(seconds),
            }
            say(f"{variant}: {figures[variant]}")
    return figures


@contextmanager
def running_participants() -> Iterator[dict[str, str]]:
    """Start two servers in addition to the home; yield their DSNs by name."""
    with ExitStack() as started:
        databases = {}
        for name in _OTHERS:
            server = EmbeddedPostgres(state_directory() / "bench" / name)
            started.callback(server.stop)
            server.start()
            databases[name] = server.dsn
        yield databases


def _pipeline_of(variant: str, databases: Mapping[str, str]) -> BenchPipeline:
    added = VARIANTS[variant]
    return varied(
        PAGE_VIEWS,
        variant,
        output=added,
        databases=databases if "database" in added else {},
    )
