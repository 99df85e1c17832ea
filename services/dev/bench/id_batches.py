"""Batches of events that are numbers, some of them repeats of what came before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

I64Array = npt.NDArray[np.int64]

#: The pipeline that has nothing but IDs.
IDS_PIPELINE = "bench-dedup"
#: Events of a batch, as a driver plans it by default.
BATCH = 500_000
#: The share of events that repeat an earlier one.
REPEATS = 0.1
#: Sizes of a catalog: the smallest holds a batch, and the events of the largest fall
#: into one horizon.
IDS_MIN, IDS_MAX = BATCH, 100_000_000
#: Repeats that are recent are of so many of the newest events.
_RECENT = 500_000


def batch_numbers(
    before: int, *, rng: np.random.Generator, recent: bool = False, size: int = BATCH
) -> I64Array:
    """Draw a batch that comes after the events ``0`` to ``before``.

    Args:
        before: How many events there were; the new ones are those after them.
        rng: What chooses the repeats, none of them twice, and where they stand.
        recent: Whether repeats are of the newest events only; else of all alike.
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
    """The batches that one size of the catalog is measured with.

    Attributes:
        size: IDs in the catalog before them.
        asked: Asked for, and never published.
        recent: The same, with repeats of the newest events only.
        appended: Published one after the other.
        new: Events that are all new.
    """

    size: int
    asked: Sequence[I64Array]
    recent: I64Array
    appended: Sequence[I64Array]
    new: I64Array

    @property
    def size_after(self) -> int:
        """IDs in the catalog when they are published."""
        return self.size + len(self.appended) * new_in(len(self.appended[0]))


def draw_batches(
    size: int, *, seed: int, asked: int = 5, appended: int = 4
) -> SizeBatches:
    """Draw what a size is measured with; the same seed draws the same."""
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
    """Write batches to files for another process; return the files."""
    directory.mkdir(parents=True, exist_ok=True)
    files = []
    for number, batch in enumerate(batches):
        file = directory / f"{name}-{number}.npy"
        np.save(file, batch)
        files.append(str(file))
    return files
