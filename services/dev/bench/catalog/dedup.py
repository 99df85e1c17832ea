"""The cost and the space of the seen-ID catalog by its size.

Measured is the driver's own code on a real database: the claim of an epoch, the
holder of IDs with its copy of the catalog, staging and the publish transaction. Kafka,
Spark and results are left out. Events are numbers, some of which repeat earlier ones.
Published batches grow the catalog from one size to the next. At each size the benchmark

* runs the resolver's merges to their end;
* starts a driver twice, and lets a first task ask it;
* asks for the IDs of batches and discards the answers, so that it measures a probe at
  exactly that size;
* counts, without timing it, how many IDs pass the Bloom filters;
* publishes batches one after the other, which gives the cost of an append.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tallyweir.services.dev.bench.world.bench_world import (
    bench_postgres,
    run_program,
    settle_catalog,
)
from tallyweir.services.dev.bench.world.driver_run import wrong_result
from tallyweir.services.dev.bench.world.resource_readings import (
    read_catalog_bytes,
    read_log_bytes,
)
from tallyweir.services.local.embedded.state_directory import (
    STATE_DIRECTORY_VARIABLE,
    state_directory,
)
from tallyweir.services.process.endpoints import Endpoints, program_environment
from tallyweir.services.resolver.merging import merge_catalogs
from tallyweir.sinks.postgres.schema import migrations

I64Array = npt.NDArray[np.int64]

#: The pipeline that has only IDs.
IDS_PIPELINE = "bench-dedup"
#: Events of a batch, as a driver plans it by default.
BATCH = 500_000
#: The share of events that repeat an earlier one.
REPEATS = 0.1
#: Sizes of a catalog: the smallest holds a batch, and the events of the largest fall
#: into one horizon.
IDS_MIN, IDS_MAX = BATCH, 100_000_000
#: Recent repeats are drawn from so many of the newest events.
_RECENT = 500_000


def batch_numbers(
    before: int, *, rng: np.random.Generator, recent: bool = False, size: int = BATCH
) -> I64Array:
    """Draw a batch that comes after the events ``0`` to ``before``.

    Args:
        before: Number of earlier events; the new ones follow them.
        rng: Chooses the repeats, each of them once, and the order of the batch.
        recent: Whether only the newest events are repeated; otherwise all alike are.
        size: Events of the batch.
    """
    repeats = int(size * REPEATS)
    oldest = max(0, before - _RECENT) if recent else 0
    assert before - oldest >= repeats, "there is enough to repeat"
    repeated = oldest + rng.choice(before - oldest, size=repeats, replace=False)
    new = np.arange(before, before + size - repeats, dtype=np.int64)
    numbers = np.concatenate([new, repeated.astype(np.int64)])
    return rng.permutation(numbers)


def new_in(batch: int = BATCH) -> int:
    """Return how many events of a batch are new."""
    return batch - int(batch * REPEATS)


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeBatches:
    """The batches by which one size of the catalog is measured.

    Attributes:
        size: IDs in the catalog before the batches.
        asked: Batches that are asked for, and never published.
        recent: A batch that is asked for, with repeats of the newest events only.
        appended: Batches that are published one after the other.
        new: A batch whose events are all new.
    """

    size: int
    asked: Sequence[I64Array]
    recent: I64Array
    appended: Sequence[I64Array]
    new: I64Array

    @property
    def size_after(self) -> int:
        """IDs in the catalog after ``appended`` is published."""
        return self.size + len(self.appended) * new_in(len(self.appended[0]))


def draw_batches(
    size: int, *, seed: int, asked: int = 5, appended: int = 4
) -> SizeBatches:
    """Draw the batches of one size; the same seed draws the same batches."""
    rng = np.random.default_rng([seed, size])
    step = new_in()
    return SizeBatches(
        size=size,
        asked=[batch_numbers(size, rng=rng) for _ in range(asked)],
        recent=batch_numbers(size, rng=rng, recent=True),
        appended=[
            batch_numbers(size + number * step, rng=rng) for number in range(appended)
        ],
        new=np.arange(size, size + BATCH, dtype=np.int64),
    )


def save_batches(batches: Sequence[I64Array], directory: Path, name: str) -> list[str]:
    """Write batches to files for another process; return the files' paths."""
    directory.mkdir(parents=True, exist_ok=True)
    files = []
    for number, batch in enumerate(batches):
        file = directory / f"{name}-{number}.npy"
        np.save(file, batch)
        files.append(str(file))
    return files


#: A driver's settings must name a broker, but this benchmark never connects to it.
_NO_BROKER = "localhost:9"
#: IDs that one process fills in; progress is reported before each process.
_FILLED_AT_ONCE = 10_000_000
_TIMEOUT_S = 3_600.0

#: Figures that must stay flat as the catalog grows, and how much they may rise.
FLAT = ("probe_us", "append_us")
FLAT_WITHIN = 1.5
START_WITHIN_S = 10.0

Figures = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class IdsProgram:
    """A driver that has only IDs, as a program that does one task, without Spark.

    Attributes:
        endpoints: The benchmark's servers.
        folder: State directory of the driver, and place for files of its tasks.
        say: Reports progress.
    """

    endpoints: Endpoints
    folder: Path
    say: Callable[[str], None]

    def run(self, **task: object) -> Figures:
        """Run a task to its end."""
        environment = program_environment(self.endpoints) | {
            STATE_DIRECTORY_VARIABLE: str(self.folder)
        }
        command = [sys.executable, "-m", "tallyweir.spark_jobs.dedup_bench"]
        lines = run_program(command, environment, timeout_s=_TIMEOUT_S, task=task)
        figures: Figures = json.loads(lines[-1])
        return figures

    def fill(self, begin: int, end: int, **task: object) -> None:
        """Publish the events from ``begin`` to before ``end``."""
        for first in range(begin, end, _FILLED_AT_ONCE):
            last = min(first + _FILLED_AT_ONCE, end)
            self.say(f"publishing IDs {first:,} to {last:,}")
            self.run(do="fill", begin=first, end=last, **task)


def measure(*, sizes: Sequence[int], seed: int, say: Callable[[str], None]) -> Figures:
    """Measure the catalog at each size, the smallest first.

    Raises:
        FatalError: A part failed, or gave a wrong answer.
    """
    sizes = sorted(set(sizes))
    points: list[Figures] = []
    with bench_postgres() as dsn:
        program = IdsProgram(
            endpoints=Endpoints(kafka_bootstrap=_NO_BROKER, home_dsn=dsn),
            folder=state_directory() / "bench" / "dedup",
            say=say,
        )
        migrations.migrate(dsn)
        filled = 0
        for size in sizes:
            batches = draw_batches(size, seed=seed)
            points.append(_measure_ours(program, batches, filled=filled))
            filled = batches.size_after
    return {
        "points": points,
        "growth": growth(points),
        "bars": {"flat_within": FLAT_WITHIN, "first_answer_seconds": START_WITHIN_S},
        "batch": BATCH,
        "repeats": REPEATS,
        "seed": seed,
    }


def _measure_ours(program: IdsProgram, batches: SizeBatches, *, filled: int) -> Figures:
    program.fill(filled, batches.size, batch=BATCH)
    # Merge runs into chunks, as the resolver does while a driver works.
    with redirect_stdout(sys.stderr):
        merged = merge_catalogs(program.endpoints.home_dsn)
    assert not merged.failures, "nobody else merges here"
    settle_catalog(program.endpoints.home_dsn)
    stored = read_catalog_bytes(program.endpoints.home_dsn, IDS_PIPELINE)
    save = partial(save_batches, directory=program.folder)
    asked = save(batches.asked, name="asked")
    started = {}
    for repeats, file in (
        ("recent", *save([batches.recent], name="recent")),
        ("of_all_ages", asked[0]),
    ):
        program.say(f"starting on {batches.size:,} IDs, repeats {repeats}")
        started[repeats] = program.run(do="start", ask=file)
        _check_new(started[repeats]["survivors"], batches.size)
    program.say(f"measuring {batches.size:,} IDs")
    log_before = read_log_bytes(program.endpoints.home_dsn)
    (new,) = save([batches.new], name="new")
    appended = save(batches.appended, name="appended")
    measured = program.run(do="measure", ask=asked, ask_new=new, append=appended)
    log_bytes = read_log_bytes(program.endpoints.home_dsn) - log_before
    for survivors in (
        *measured.pop("probe_survivors"),
        *measured.pop("append_survivors"),
    ):
        _check_new(survivors, batches.size)
    ours = {
        **measured,
        "postgres_bytes_per_id": stored / batches.size,
        "memory_bytes_per_id": measured["memory_bytes"] / batches.size,
        "disk_bytes_per_id": measured["disk_bytes"] / batches.size,
        "log_bytes_per_event": log_bytes / (len(appended) * BATCH),
        "first_answer_seconds": {
            name: one["claimed_seconds"] + one["catalog_opened_seconds"]
            for name, one in started.items()
        },
        "catalog_opened_seconds": {
            name: one["catalog_opened_seconds"] for name, one in started.items()
        },
        "probe_at_start_us": started["of_all_ages"]["probe_us"],
    }
    program.say(
        f"tallyweir, {batches.size:,} IDs: probe {ours['probe_us']:.2f}, "
        f"append {ours['append_us']:.2f} us per event"
    )
    return {"ids": batches.size, "tallyweir": ours}


def _check_new(survivors: int, size: int) -> None:
    if survivors != new_in():
        raise wrong_result(
            f"With {size} IDs in the catalog {survivors} events of a batch survived "
            f"instead of {new_in()}."
        )


def growth(points: Sequence[Figures]) -> Figures:
    """Return the growth of each cost from the smallest size to the largest."""
    first, last = points[0], points[-1]
    ours = {
        name: round(last["tallyweir"][name] / first["tallyweir"][name], 2)
        for name in FLAT
    }
    return {"tallyweir": ours}


def tables(
    figures: Mapping[str, Any],
) -> list[tuple[Sequence[str], Sequence[Sequence[object]]]]:
    """Return tables to print: cost, space and filters by size."""
    points = figures["points"]
    ours = [(f"{point['ids']:,}", point["tallyweir"]) for point in points]
    return [
        (_COST_COLUMNS, [_cost_row(point) for point in points]),
        (
            ("IDs", "B/ID Postgres", "B/ID memory", "B/ID disk", "log B/event"),
            [
                (
                    ids,
                    *(
                        f"{one[name]:.1f}"
                        for name in (
                            "postgres_bytes_per_id",
                            "memory_bytes_per_id",
                            "disk_bytes_per_id",
                            "log_bytes_per_event",
                        )
                    ),
                )
                for ids, one in ours
            ],
        ),
        (
            ("IDs", "looked up", "false positives", "configured"),
            [
                (
                    ids,
                    *(
                        f"{one[name]:.3%}"
                        for name in (
                            "looked_up_share",
                            "false_positive_rate",
                            "false_positive_rate_configured",
                        )
                    ),
                )
                for ids, one in ours
            ],
        ),
    ]


_COST_COLUMNS = (
    "IDs",
    "probe us",
    "append us",
    "first answer s",
)


def _cost_row(point: Mapping[str, Any]) -> Sequence[str]:
    ours = point["tallyweir"]
    return (
        f"{point['ids']:,}",
        f"{ours['probe_us']:.3f}",
        f"{ours['append_us']:.2f}",
        f"{max(ours['first_answer_seconds'].values()):.2f}",
    )
