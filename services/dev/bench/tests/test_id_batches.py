"""Batches have the repeats that they should, and are drawn alike again."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tallyweir.services.dev.bench.catalog.dedup import (
    BATCH,
    NEW,
    batch_numbers,
    draw_batches,
    save_batches,
)

_SIZE = 600_000


def test_a_tenth_of_a_batch_repeats_what_came_before_it() -> None:
    """The others go on where the events before have ended, none of them twice."""
    numbers = batch_numbers(_SIZE, rng=np.random.default_rng(7), size=1_000)

    assert 1_000 == len(set(numbers.tolist()))
    assert list(range(_SIZE, _SIZE + 900)) == sorted(numbers[numbers >= _SIZE])
    assert 100 == np.count_nonzero(numbers < _SIZE)


def test_recent_repeats_are_of_the_newest_events() -> None:
    """Of a catalog that is larger, nothing older is asked for."""
    numbers = batch_numbers(
        _SIZE, rng=np.random.default_rng(7), recent=True, size=1_000
    )
    assert _SIZE - 500_000 <= numbers.min()


def test_batches_that_are_appended_follow_each_other() -> None:
    """Each may repeat what the one before has brought, and has others of its own."""
    drawn = draw_batches(_SIZE, seed=7)

    brought = [
        numbers[numbers >= _SIZE + number * NEW]
        for number, numbers in enumerate(drawn.appended)
    ]
    assert [NEW] * len(drawn.appended) == list(map(len, brought))
    assert _SIZE + len(drawn.appended) * NEW == drawn.size_after
    assert drawn.size_after == max(map(np.max, brought)) + 1


def test_the_same_seed_draws_the_same_batches() -> None:
    """Another seed draws other repeats."""
    first, same, other = (draw_batches(_SIZE, seed=seed) for seed in (7, 7, 8))
    assert (first.recent == same.recent).all()
    assert (first.recent != other.recent).any()


def test_a_saved_batch_is_read_as_it_was(tmp_path: Path) -> None:
    """One file for each, in their order."""
    batches = [np.arange(BATCH), np.arange(3)]
    files = save_batches(batches, tmp_path / "new", "some")
    assert [BATCH, 3] == [len(np.load(file)) for file in files]
