"""Events per second with a full catalog of seen IDs, compared with an empty one.

The same pipeline reads the same topic with a horizon of seven days: once with an empty
catalog, as a new pipeline has it, and once with a catalog of IDs from the whole
horizon. The two runs alternate, because the speed of a machine varies. The IDs are
spread evenly over the buckets. The newest bucket is that of the events themselves, so
the driver checks every event against filters, chunks and runs.

To fill a catalog through Kafka would take hours. Instead, a driver that has only IDs
(``tallyweir.spark_jobs.dedup_bench``) publishes the IDs of other events, the benchmark
merges them into chunks as the resolver does, and SQL lends them to each run as IDs of
batch 0. The rows are those of a catalog that has grown, with two differences: their
owner is another pipeline, and the newest two batches are merged as well.

``verify`` counts the IDs that batches have added to the catalog, and so would report
the lent ones. The benchmark therefore counts those itself: all of them must be there
after the run. It then removes them, and ``verify`` must find no problem: the batches'
own IDs are all there, and each event has exactly one row.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from tallyweir.services.dev.bench.catalog.dedup import BATCH, IDS_PIPELINE, IdsProgram
from tallyweir.services.dev.bench.catalog.lent_ids import (
    count_lent,
    lend,
    merge_all,
    take_back,
)
from tallyweir.services.dev.bench.world.bench_world import (
    DUPLICATES,
    PAGE_VIEWS,
    PARTITIONS,
    TOPIC,
    BenchPipeline,
    Rounds,
    bench_servers,
    check_room,
    drop_table,
    free_bytes,
    produce_rounds,
    settle_catalog,
    varied,
)
from tallyweir.services.dev.bench.world.driver_run import (
    Rates,
    await_start,
    check_rows,
    check_verified,
    rates_of,
    run_driver,
    running_driver,
    warm_up,
    wrong_result,
)
from tallyweir.services.kafka.topics import ensure_topic
from tallyweir.services.local.datasets.page_views import FIRST_VIEW_MICROS
from tallyweir.services.local.embedded.state_directory import state_directory
from tallyweir.services.process.endpoints import Endpoints
from tallyweir.sinks.protocol.catalog_limits import BUCKETS_PER_HORIZON

#: Least rate with a full catalog, as a share of the rate with an empty one.
RATIO_MIN = 0.8
#: Longest time from the start of the driver's process to its first batch.
FIRST_BATCH_S_MAX = 10.0
#: Runs with each catalog; an odd number, so that one of them is the median.
_TURNS = 3
_ROUNDS = 4
_HORIZON: Mapping[str, object] = {"deduplicate": {"horizon": "7 days"}}
#: Length of a bucket, both in a pipeline with that horizon and in the one that fills.
BUCKET_SECONDS = 7 * 86_400 // BUCKETS_PER_HORIZON
_FILL_BATCHES = 200
_FILL_BATCH_MIN = 10_000

#: An ID in Postgres, twice while it is lent; in the driver's copy during a merge; and
#: in the merge of a bucket.
_BYTES_PER_ID = 2 * 33 + 64 + 32 // BUCKETS_PER_HORIZON
#: A message, and the row that it becomes.
_BYTES_PER_EVENT = 130 + 150
_LOG_BYTES = 4 << 30
#: An ID in the files that the driver maps, and in its filters.
_COPY_BYTES_PER_ID = 32
_TOUCHED_AT_ONCE = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run of the pipeline, from the start of its driver."""

    rates: Rates
    first_batch_seconds: float

    def figures(self) -> dict[str, float]:
        """Return all figures, rounded."""
        first = round(self.first_batch_seconds, 1)
        return {**self.rates.figures(), "first_batch_seconds": first}


def measure(
    *, ids: int, events: int, seed: int, say: Callable[[str], None]
) -> dict[str, object]:
    """Measure four rounds of ``events``, without IDs in the catalog and with ``ids``.

    Raises:
        ConfigurationError: ``BENCH_ROOM``.
        FatalError: A run did not end, or the result is wrong.
    """
    total = _ROUNDS * events
    check_room(
        free_bytes(state_directory()),
        {
            "IDs": ids * _BYTES_PER_ID,
            "events": total * _BYTES_PER_EVENT,
            "Postgres' log": _LOG_BYTES,
        },
        fix="Free disk space, or measure fewer --ids.",
    )
    with bench_servers() as endpoints:
        say("making the pipelines known")
        ensure_topic(endpoints.kafka_bootstrap, TOPIC, partitions=PARTITIONS)
        for number in range(1, _TURNS + 1):
            with running_driver(endpoints, _full_pipeline(number)) as driver:
                await_start(driver)
        rounds = produce_rounds(
            endpoints, events=events, rounds=_ROUNDS, seed=seed, say=say
        )
        warm_up(endpoints, events=total, say=say)
        _fill(endpoints, ids, say)
        turns = [
            _take_turn(rounds, ids, number, say) for number in range(1, _TURNS + 1)
        ]
    return {
        "ids": ids,
        **figures_of(turns),
        "verified": True,
        "events": total,
        "duplicates": DUPLICATES,
        "seed": seed,
    }


def _take_turn(
    rounds: Rounds, ids: int, number: int, say: Callable[[str], None]
) -> tuple[Run, Run]:
    """Run once with an empty catalog, and once with a full one."""
    dsn = rounds.endpoints.home_dsn
    empty = varied(PAGE_VIEWS, f"empty_catalog_{number}", keys=_HORIZON)
    full = _full_pipeline(number)
    say(f"running with an empty catalog, {number} of {_TURNS}")
    without = _run(rounds, ids, empty)
    say(f"{without.rates}")
    check_verified(dsn, empty)
    drop_table(dsn, empty.table)

    say(f"lending {ids:,} IDs")
    lend(dsn, lender=IDS_PIPELINE, borrower=full.name)
    _check_lent(dsn, full, ids)
    settle_catalog(dsn)
    say(f"running with {ids:,} IDs")
    within = _run(rounds, ids, full)
    say(f"{within.rates}")
    _check_lent(dsn, full, ids)
    take_back(dsn, full.name)
    check_verified(dsn, full)
    drop_table(dsn, full.table)
    settle_catalog(dsn)
    return without, within


def _run(rounds: Rounds, ids: int, pipeline: BenchPipeline) -> Run:
    _touch_memory(ids * _COPY_BYTES_PER_ID)
    began = time.time()
    batches = run_driver(rounds, pipeline)
    dsn = rounds.endpoints.home_dsn
    check_rows([dsn], pipeline.table, rows=rounds.distinct)
    return Run(
        rates=rates_of(batches, rounds),
        first_batch_seconds=batches[0].published_at - began,
    )


def _full_pipeline(number: int) -> BenchPipeline:
    return varied(PAGE_VIEWS, f"full_catalog_{number}", keys=_HORIZON)


def figures_of(turns: Sequence[tuple[Run, Run]]) -> dict[str, object]:
    """Return the figures of each turn, and the medians that the bars apply to.

    Args:
        turns: Runs with an empty catalog and with a full one, in turns.
    """
    ratios = [
        {
            "cold": round(full.rates.cold / empty.rates.cold, 2),
            "warm": round(full.rates.warm / empty.rates.warm, 2),
        }
        for empty, full in turns
    ]
    return {
        "ratio": _medians(ratios),
        "bars": {"ratio_min": RATIO_MIN, "first_batch_seconds_max": FIRST_BATCH_S_MAX},
        "empty": _medians([empty.figures() for empty, _ in turns]),
        "full": _medians([full.figures() for _, full in turns]),
        "turns": [
            {"ratio": ratio, "empty": empty.figures(), "full": full.figures()}
            for ratio, (empty, full) in zip(ratios, turns, strict=True)
        ],
    }


def _medians(figures: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: median(one[name] for one in figures) for name in figures[0]}


def fill_times(ids: int) -> dict[str, int]:
    """Spread events over the horizon's buckets, up to the bucket of the page views.

    Returns:
        When the first event happened, and the gap between two, in microseconds.
    """
    newest = FIRST_VIEW_MICROS // 1_000_000 // BUCKET_SECONDS * BUCKET_SECONDS
    begin = newest - (BUCKETS_PER_HORIZON - 1) * BUCKET_SECONDS
    return {
        "begin_us": begin * 1_000_000,
        "gap_us": BUCKETS_PER_HORIZON * BUCKET_SECONDS * 1_000_000 // ids,
    }


def _touch_memory(room: int) -> None:
    """Use as much memory as a full catalog needs, so that the run need not wait for it.

    The host of a virtual machine takes back memory that was unused for a while. A
    driver that fetches its chunks would wait for memory twenty times as long as it
    writes.
    """
    block = bytes(_TOUCHED_AT_ONCE)
    with tempfile.TemporaryFile(dir=state_directory()) as file:
        for _ in range(0, room, len(block)):
            file.write(block)


def _fill(endpoints: Endpoints, ids: int, say: Callable[[str], None]) -> None:
    """Publish IDs under a pipeline of their own, and merge its buckets."""
    folder = state_directory() / "bench" / "filler"
    program = IdsProgram(endpoints=endpoints, folder=folder, say=say)
    # Batches so small that most of them are merged.
    batch = min(BATCH, max(_FILL_BATCH_MIN, ids // _FILL_BATCHES))
    program.fill(0, ids, batch=batch, times=fill_times(ids))
    say("merging buckets")
    merge_all(endpoints.home_dsn, IDS_PIPELINE)
    settle_catalog(endpoints.home_dsn)


def _check_lent(dsn: str, pipeline: BenchPipeline, ids: int) -> None:
    found = count_lent(dsn, pipeline.name)
    if found != ids:
        raise wrong_result(
            f"{pipeline.name} has {found} IDs from outside instead of {ids}."
        )
