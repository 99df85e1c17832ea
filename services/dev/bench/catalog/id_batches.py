"""Batches of events that are numbers, some of which repeat earlier ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

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
