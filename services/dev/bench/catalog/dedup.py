"""The cost and the space of the seen-ID catalog by its size.

Measured is the driver's own code on a real database: the claim of an epoch, the
holder of IDs with its copy of the catalog, staging and the publish transaction. Kafka,
Spark and results are left out. Events are numbers, some of which repeat earlier ones.
Published batches grow the catalog from one size to the next. At each size the benchmark

* runs the resolver's merges to their end;
* starts a driver twice, and lets a first task ask it;
* asks for the IDs of batches and discards the answers, so that it measures a probe at
  exactly that size;
* publishes batches one after the other, which gives the cost of an append.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
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
#: New events of a batch.
NEW = BATCH - int(BATCH * REPEATS)
_ASKED, _APPENDED = 5, 4
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeBatches:
    """The batches by which one size of the catalog is measured.

    Attributes:
        size: IDs in the catalog before the batches.
        asked: Batches that are asked for, and never published.
        recent: A batch that is asked for, with repeats of the newest events only.
        appended: Batches that are published one after the other.
    """

    size: int
    asked: Sequence[I64Array]
    recent: I64Array
    appended: Sequence[I64Array]

    @property
    def size_after(self) -> int:
        """IDs in the catalog after ``appended`` is published."""
        return self.size + len(self.appended) * NEW


def draw_batches(size: int, *, seed: int) -> SizeBatches:
    """Draw the batches of one size; the same seed draws the same batches."""
    rng = np.random.default_rng([seed, size])
    return SizeBatches(
        size=size,
        asked=[batch_numbers(size, rng=rng) for _ in range(_ASKED)],
        recent=batch_numbers(size, rng=rng, recent=True),
        appended=[
            batch_numbers(size + number * NEW, rng=rng) for number in range(_APPENDED)
        ],
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


def measure(*, ids: Sequence[int], seed: int, say: Callable[[str], None]) -> Figures:
    """Measure the catalog at each of some sizes, the smallest first.

    Raises:
        FatalError: A part failed, or gave a wrong answer.
    """
    points: list[Figures] = []
    with bench_postgres() as dsn:
        program = IdsProgram(
            endpoints=Endpoints(kafka_bootstrap=_NO_BROKER, home_dsn=dsn),
            folder=state_directory() / "bench" / "dedup",
            say=say,
        )
        migrations.migrate(dsn)
        filled = 0
        for size in ids:
            batches = draw_batches(size, seed=seed)
            points.append(_measure_size(program, batches, filled=filled))
            filled = batches.size_after
    return {
        "points": points,
        "growth": growth(points),
        "bars": {"flat_within": FLAT_WITHIN, "first_answer_seconds": START_WITHIN_S},
        "batch": BATCH,
        "repeats": REPEATS,
        "seed": seed,
    }


def _measure_size(program: IdsProgram, batches: SizeBatches, *, filled: int) -> Figures:
    dsn, size = program.endpoints.home_dsn, batches.size
    program.fill(filled, size, batch=BATCH)
    # Merge runs into chunks, as the resolver does while a driver works.
    with redirect_stdout(sys.stderr):
        merged = merge_catalogs(dsn)
    assert not merged.failures, "nobody else merges here"
    settle_catalog(dsn)
    stored = read_catalog_bytes(dsn, IDS_PIPELINE)
    save = partial(save_batches, directory=program.folder)
    asked, appended = (
        save(batches.asked, name="asked"),
        save(batches.appended, name="a"),
    )
    program.say(f"starting on {size:,} IDs")
    started = {
        "recent": program.run(do="start", ask=save([batches.recent], name="recent")[0]),
        "of_all_ages": program.run(do="start", ask=asked[0]),
    }
    program.say(f"measuring {size:,} IDs")
    log_before = read_log_bytes(dsn)
    measured = program.run(do="measure", ask=asked, append=appended)
    log_bytes = read_log_bytes(dsn) - log_before
    for one in (*started.values(), measured):
        _check_new(one["survivors"], size)
    point = {
        "ids": size,
        "probe_us": round(measured["probe_seconds"] / BATCH * 1e6, 3),
        "append_us": round(measured["append_seconds"] / BATCH * 1e6, 3),
        "postgres_bytes_per_id": round(stored / size, 1),
        "memory_bytes_per_id": round(measured["memory_bytes"] / size, 1),
        "log_bytes_per_event": round(log_bytes / (len(appended) * BATCH), 1),
        "first_answer_seconds": {
            name: round(one["seconds"], 2) for name, one in started.items()
        },
    }
    program.say(f"tallyweir: {point}")
    return point


def _check_new(survivors: Sequence[int], size: int) -> None:
    if any(number != NEW for number in survivors):
        raise wrong_result(
            f"With {size} IDs in the catalog {survivors} events of batches survived "
            f"instead of {NEW} each."
        )


def growth(points: Sequence[Figures]) -> Figures:
    """Return the growth of each cost from the smallest size to the largest."""
    return {name: round(points[-1][name] / points[0][name], 2) for name in FLAT}
