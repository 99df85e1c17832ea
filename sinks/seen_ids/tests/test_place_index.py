"""A place index finds what a binary search finds, however the words are spread."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallyweir.sinks.seen_ids import ordering
from tallyweir.sinks.seen_ids.ordering import PlaceIndex, find_pairs, find_pairs_from

SEED = 20261123

_ENDS = st.sampled_from([0, 1, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1])
_WORDS = st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 40), _ENDS)
_PAIRS = st.tuples(_WORDS, st.integers(0, 5))


@settings(max_examples=200, deadline=None)
@given(
    words=st.lists(_WORDS, max_size=80),
    wanted=st.lists(_WORDS, max_size=40),
    cell_words=st.sampled_from([1, 4, 16]),
)
def test_a_place_is_that_of_a_binary_search(
    words: list[int], wanted: list[int], cell_words: int
) -> None:
    """In empty columns, where all words are in one cell, and at both ends."""
    column = np.array(sorted(words), dtype=np.uint64)
    asked = np.array([*words, *wanted], dtype=np.uint64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ordering, "_CELL_WORDS", cell_words)
        index = PlaceIndex(column)
    places = index.find_places(column, asked)
    assert places.tolist() == np.searchsorted(column, asked).tolist()


@settings(max_examples=200, deadline=None)
@given(there=st.sets(_PAIRS, max_size=80), others=st.sets(_PAIRS, max_size=40))
def test_pairs_are_found_as_in_a_set(
    there: set[tuple[int, int]], others: set[tuple[int, int]]
) -> None:
    """Also where many share their first word, and with or without an index."""
    hi, lo = np.array(sorted(there), dtype=np.uint64).reshape(-1, 2).T
    asked = sorted(there | others)
    asked_hi, asked_lo = np.array(asked, dtype=np.uint64).reshape(-1, 2).T
    expected = [row for row, pair in enumerate(asked) if pair in there]
    left = PlaceIndex(hi).find_places(hi, asked_hi)
    for rows, at in (
        find_pairs(hi, lo, asked_hi, asked_lo),
        find_pairs_from(left, hi, lo, asked_hi, asked_lo),
    ):
        assert rows.tolist() == expected
        assert hi[at].tolist() == asked_hi[rows].tolist()
        assert lo[at].tolist() == asked_lo[rows].tolist()


def test_an_index_takes_at_most_half_a_byte_a_word_and_few_steps() -> None:
    """So a hundred million IDs take 50 MB at most."""
    words = np.random.default_rng(SEED).integers(0, 2**64, 200_000, dtype=np.uint64)
    index = PlaceIndex(np.sort(words))
    assert index.nbytes <= len(words) / 2 + 8
    assert index.steps <= 6
