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
from typing import Any

import psutil

from tallyweir.services.dev.bench.catalog.dedup import BATCH, IDS_PIPELINE, IdsProgram
from tallyweir.services.dev.bench.catalog.lent_ids import (
    count_lent,
    lend,
    merge_all,
    read_buckets,
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
    run_timeout_s,
    settle_catalog,
    varied,
)
from tallyweir.services.dev.bench.world.driver_run import (
    Rates,
    await_claim,
    await_events,
    check_rows,
    check_verified,
    rates_of,
    running_driver,
    warm_up,
    wrong_result,
)
from tallyweir.services.dev.bench.world.resource_readings import (
    Resident,
    memory_of,
    read_catalog_bytes,
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
_START_TIMEOUT_S = 600.0

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
    memory: Mapping[str, Resident]

    def figures(self) -> dict[str, float]:
        """Return all figures, rounded."""
        return {
            "events_per_second": round(self.rates.warm),
            "cold_events_per_second": round(self.rates.cold),
            "first_batch_seconds": round(self.first_batch_seconds, 1),
            "driver_bytes": self.memory["driver"].own,
            "driver_file_bytes": self.memory["driver"].files,
            "jvm_bytes": self.memory["jvm"].own,
            "python_bytes": self.memory["python"].own,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A run with each catalog, one right after the other."""

    empty: Run
    full: Run
    #: Size of the full catalog in Postgres, per ID.
    bytes_per_id: float


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
            full = _full_pipeline(number)
            with running_driver(endpoints, full) as driver:
                await_claim(
                    driver, endpoints.home_dsn, full, timeout_s=_START_TIMEOUT_S
                )
        rounds = produce_rounds(
            endpoints, events=events, rounds=_ROUNDS, seed=seed, say=say
        )
        warm_up(endpoints, events=total, say=say)
        began = time.monotonic()
        catalog = _fill(endpoints, ids, say)
        filled = time.monotonic() - began
        measured = _Measured(rounds=rounds, ids=ids, say=say)
        turns = [measured.take_turn(number) for number in range(1, _TURNS + 1)]
    return {
        "ids": ids,
        **figures_of(turns),
        "catalog": {**catalog, "fill_seconds": round(filled)},
        "verified": True,
        "events": total,
        "duplicates": DUPLICATES,
        "seed": seed,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """Runs the pipeline over the rounds, in turns."""

    rounds: Rounds
    ids: int
    say: Callable[[str], None]

    def take_turn(self, number: int) -> Turn:
        """Run once with an empty catalog, and once with a full one."""
        dsn = self.rounds.endpoints.home_dsn
        empty = varied(PAGE_VIEWS, f"empty_catalog_{number}", keys=_HORIZON)
        full = _full_pipeline(number)
        self.say(f"running with an empty catalog, {number} of {_TURNS}")
        without = self._run(empty)
        check_verified(dsn, empty)
        drop_table(dsn, empty.table)

        self.say(f"lending {self.ids:,} IDs")
        lend(dsn, lender=IDS_PIPELINE, borrower=full.name)
        _check_lent(dsn, full, self.ids)
        room = read_catalog_bytes(dsn, full.name)
        settle_catalog(dsn)
        self.say(f"running with {self.ids:,} IDs")
        within = self._run(full)
        _check_lent(dsn, full, self.ids)
        take_back(dsn, full.name)
        check_verified(dsn, full)
        drop_table(dsn, full.table)
        settle_catalog(dsn)
        return Turn(empty=without, full=within, bytes_per_id=round(room / self.ids, 1))

    def _run(self, pipeline: BenchPipeline) -> Run:
        _touch_memory(self.ids * _COPY_BYTES_PER_ID)
        endpoints, total = self.rounds.endpoints, self.rounds.total
        began = time.time()
        with running_driver(endpoints, pipeline) as driver:
            batches = await_events(
                driver,
                endpoints.home_dsn,
                pipeline,
                events=total,
                timeout_s=run_timeout_s(total),
            )
            memory = memory_of(psutil.Process(driver.pid), pipeline)
        check_rows([endpoints.home_dsn], pipeline.table, rows=self.rounds.distinct)
        rates = rates_of(batches, self.rounds)
        self.say(f"{rates}")
        return Run(
            rates=rates,
            first_batch_seconds=batches[0].published_at - began,
            memory=memory,
        )


def _full_pipeline(number: int) -> BenchPipeline:
    return varied(PAGE_VIEWS, f"full_catalog_{number}", keys=_HORIZON)


def figures_of(turns: Sequence[Turn]) -> dict[str, object]:
    """Return the figures of each turn, and the medians that the bars apply to."""
    ratios = [ratios_of(turn.full.rates, turn.empty.rates) for turn in turns]
    ratio = {name: median(one[name] for one in ratios) for name in ("cold", "warm")}
    return {
        "ratio": ratio,
        "bars": {"ratio_min": RATIO_MIN, "first_batch_seconds_max": FIRST_BATCH_S_MAX},
        "empty": _medians([turn.empty for turn in turns]),
        "full": _medians([turn.full for turn in turns]),
        "turns": [
            {
                "ratio": of,
                "empty": turn.empty.figures(),
                "full": turn.full.figures(),
                "bytes_per_id": turn.bytes_per_id,
            }
            for of, turn in zip(ratios, turns, strict=True)
        ],
    }


def _medians(runs: Sequence[Run]) -> dict[str, float]:
    figures = [one.figures() for one in runs]
    return {name: median(one[name] for one in figures) for name in figures[0]}


def ratios_of(full: Rates, empty: Rates) -> dict[str, float]:
    """Compare two runs, cold and warm."""
    return {
        "cold": round(full.cold / empty.cold, 2),
        "warm": round(full.warm / empty.warm, 2),
    }


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


def fill_batch(ids: int) -> int:
    """Return the size of the filling batches: so small that most are merged."""
    return min(BATCH, max(_FILL_BATCH_MIN, ids // _FILL_BATCHES))


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


def _fill(
    endpoints: Endpoints, ids: int, say: Callable[[str], None]
) -> dict[str, object]:
    """Publish IDs under a pipeline of their own, and merge its buckets.

    Raises:
        FatalError: ``BENCH_WRONG``: the IDs are not in the buckets intended.
    """
    folder = state_directory() / "bench" / "filler"
    program = IdsProgram(endpoints=endpoints, folder=folder, say=say)
    program.fill(0, ids, batch=fill_batch(ids), times=fill_times(ids))
    say("merging buckets")
    dsn = endpoints.home_dsn
    merge_all(dsn, IDS_PIPELINE)
    settle_catalog(dsn)
    buckets = read_buckets(dsn, IDS_PIPELINE)
    check_buckets([one.bucket for one in buckets], ids)
    return {
        "buckets": len(buckets),
        "buckets_merged": sum(one.chunks > 0 for one in buckets),
    }


def check_buckets(found: Sequence[int], ids: int) -> None:
    """Check that every live bucket holds IDs, including the bucket of the events.

    Raises:
        FatalError: ``BENCH_WRONG``.
    """
    begin = fill_times(ids)["begin_us"] // 1_000_000
    wanted = [begin + number * BUCKET_SECONDS for number in range(BUCKETS_PER_HORIZON)]
    if found != wanted:
        raise wrong_result(f"The IDs are in buckets {found} instead of {wanted}.")


def _check_lent(dsn: str, pipeline: BenchPipeline, ids: int) -> None:
    found = count_lent(dsn, pipeline.name)
    if found != ids:
        raise wrong_result(
            f"{pipeline.name} has {found} IDs from outside instead of {ids}."
        )


def tables(
    figures: Mapping[str, Any],
) -> list[tuple[Sequence[str], Sequence[Sequence[object]]]]:
    """Return tables to print: rates, starts and memory with each catalog."""
    ids = f"{figures['ids']:,}"
    rows = []
    for turn, one in (*enumerate(figures["turns"], 1), ("median", figures)):
        ratio = one["ratio"]
        rows.append((turn, "none", *_columns_of(one["empty"]), "", ""))
        rows.append((turn, ids, *_columns_of(one["full"]), *ratio.values()))
    bars, ratio = figures["bars"], figures["ratio"]
    first = figures["full"]["first_batch_seconds"]
    least, most = bars["ratio_min"], bars["first_batch_seconds_max"]
    return [
        (
            (
                *("turn", "IDs", "cold events/s", "warm events/s", "first batch s"),
                *("driver's Python MB", "cold ratio", "warm ratio"),
            ),
            rows,
        ),
        (
            ("bar", "", "median"),
            [
                ("cold ratio", f"at least {least}", _held(ratio["cold"] >= least)),
                ("warm ratio", f"at least {least}", _held(ratio["warm"] >= least)),
                ("first batch", f"at most {most:.0f} s", _held(first <= most)),
            ],
        ),
    ]


def _columns_of(run: Mapping[str, float]) -> tuple[str, ...]:
    return (
        f"{run['cold_events_per_second']:,}",
        f"{run['events_per_second']:,}",
        f"{run['first_batch_seconds']:.1f}",
        f"{run['driver_bytes'] / 1e6:,.0f}",
    )


def _held(holds: bool) -> str:  # noqa: FBT001 - a cell of the table above
    return "holds" if holds else "missed"
