"""A filter never misses what is there, and seldom lets pass what is not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallyweir.sinks.protocol.catalog_limits import FALSE_POSITIVES
from tallyweir.sinks.seen_ids import bloom_filter
from tallyweir.sinks.seen_ids.bloom_filter import (
    Asked,
    BloomFilter,
    bits_per_id,
    blocks_for,
)
from tallyweir.sinks.seen_ids.ordering import U64Array

SEED = 20261123

_WORDS = st.one_of(
    st.integers(0, 2**64 - 1), st.sampled_from([0, 1, 2**32, 2**63, 2**64 - 1])
)


def _random(ids: int, seed: int) -> tuple[U64Array, U64Array]:
    rng = np.random.default_rng(seed)
    hi, lo = rng.integers(0, 2**64, (2, ids), dtype=np.uint64)
    return np.sort(hi), lo


def _filter(
    hi: U64Array, lo: U64Array, false_positives: float = FALSE_POSITIVES
) -> BloomFilter:
    return BloomFilter.over(hi, lo, blocks=blocks_for(len(hi), false_positives))


@settings(max_examples=200, deadline=None)
@given(
    pairs=st.sets(st.tuples(_WORDS, _WORDS), max_size=60),
    rows_at_once=st.sampled_from([1, 2, 7, 1 << 14]),
)
def test_what_is_there_is_always_possible(
    pairs: set[tuple[int, int]], rows_at_once: int
) -> None:
    """Whatever the words are, and wherever the rows are cut to be added."""
    hi, lo = np.array(sorted(pairs), dtype=np.uint64).reshape(-1, 2).T
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bloom_filter, "_ROWS_AT_ONCE", rows_at_once)
        bloom = _filter(hi, lo)
    assert bloom.find_possible(Asked(hi, lo)).tolist() == list(range(len(pairs)))
    assert bloom.find_possible(Asked(hi[::-1], lo[::-1])).tolist() == list(
        range(len(pairs))
    )
    # Beside IDs that are not there, most of which are left out on the way.
    other_hi, other_lo = _random(2 * len(pairs), SEED)
    order = np.argsort(np.concatenate([hi, other_hi]), kind="stable")
    rows = bloom.find_possible(
        Asked(
            np.concatenate([hi, other_hi])[order], np.concatenate([lo, other_lo])[order]
        )
    )
    assert set(np.flatnonzero(order < len(pairs))) <= set(rows)


@pytest.mark.parametrize("ids", [300, 40_000, 300_000])
def test_as_few_ids_pass_that_are_not_there_as_was_promised(ids: int) -> None:
    """The rate is the one that the size was computed for, at every size."""
    bloom = _filter(*_random(ids, SEED))
    asked = 400_000
    passed = len(bloom.find_possible(Asked(*_random(asked, SEED + 1))))
    # Five standard deviations of the count, and what a filter's own luck adds.
    assert abs(passed / asked - FALSE_POSITIVES) < 0.0005


def test_an_empty_filter_lets_nothing_pass() -> None:
    """A segment may have lost all its IDs to the horizon."""
    nothing = np.empty(0, dtype=np.uint64)
    assert not len(
        _filter(nothing, nothing).find_possible(Asked(*_random(1_000, SEED)))
    )


def test_a_filter_takes_about_two_bytes_an_id() -> None:
    """So a hundred million IDs take 211 MB of memory."""
    bloom = _filter(*_random(100_000, SEED))
    assert 16.5 < bits_per_id(FALSE_POSITIVES) < 17
    assert 2.0 < bloom.nbytes / 100_000 < 2.2


@pytest.mark.parametrize("rate", [0.1, 0.01, 0.001, 0.0001])
def test_a_stricter_filter_is_larger(rate: float) -> None:
    """Each tenth costs some bits more."""
    assert bits_per_id(rate / 10) > bits_per_id(rate) + 1
