"""What the holder knows of a batch once its round was reviewed, and for how long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tallyweir.sinks.seen_ids.claim import Candidates, RowClass
from tallyweir.sinks.seen_ids.claim_holder import ClaimHolder, RoundTerms
from tallyweir.sinks.seen_ids.segment import Columns, SegmentView
from tallyweir.sinks.seen_ids.tests.catalog import Pair, candidates_of, view_of

NEW, DUPLICATE = RowClass.SURVIVOR, RowClass.DUPLICATE
A, C = (5, 1), (9, 1)
_TERMS = RoundTerms(through_sequence=4, live_from_bucket=0, corrects=False)

_Held = Mapping[int, Columns]


def _empty(_terms: RoundTerms, _held: _Held) -> SegmentView:
    return view_of()


def _one(place: int, pair: Pair = A) -> Candidates:
    return candidates_of([(place, 1, 0, pair, 3)])[0]


def _ask(holder: ClaimHolder, number: int, asked: Candidates) -> int:
    (row_class,) = holder.ask(number, asked).classes.tolist()
    return int(row_class)


def test_a_batch_that_was_published_need_not_be_read_again() -> None:
    """Its columns are handed on as its last round gave them away, to be kept."""
    handed: list[dict[int, list[int]]] = []

    def open_view(_terms: RoundTerms, held: _Held) -> SegmentView:
        handed.append({at: columns.hi.tolist() for at, columns in held.items()})
        return view_of()

    with ClaimHolder(open_view) as holder:
        for through_sequence, pairs in ((4, (A, C)), (5, ()), (6, (A,)), (7, ())):
            number = holder.begin(replace(_TERMS, through_sequence=through_sequence))
            for pair in pairs:
                assert NEW == _ask(holder, number, _one(0, pair))
            # Who asks for nothing waits for the view all the same.
            holder.ask(number, _one(0).take(np.empty(0, dtype=np.int64)))
            assert holder.review(len(pairs), in_order=False) is None
    assert [{}, {}, {5: [5, 9]}, {6: []}] == handed


def test_who_asks_after_the_review_adds_nothing_to_the_batch() -> None:
    """A leftover task's rows are not staged, so its IDs must not count as seen."""
    with ClaimHolder(_empty) as holder:
        number = holder.begin(_TERMS)
        assert NEW == _ask(holder, number, _one(0))
        assert holder.review(1, in_order=False) is None
        assert NEW == _ask(holder, number, _one(0, C))
        number = holder.begin(replace(_TERMS, through_sequence=5))
        assert [DUPLICATE, NEW] == [_ask(holder, number, _one(1, p)) for p in (A, C)]


def test_what_was_staged_again_or_after_it_is_not_handed_on() -> None:
    """A refused row changes what both batches file."""
    handed: list[dict[int, list[int]]] = []

    def open_view(_terms: RoundTerms, held: _Held) -> SegmentView:
        handed.append({at: columns.hi.tolist() for at, columns in held.items()})
        return view_of()

    with ClaimHolder(open_view) as holder:
        for through_sequence, pair in ((4, A), (5, C), (4, (7, 1)), (5, (8, 1))):
            number = holder.begin(replace(_TERMS, through_sequence=through_sequence))
            assert NEW == _ask(holder, number, _one(0, pair))
            assert holder.review(1, in_order=False) is None
        holder.ask(holder.begin(replace(_TERMS, through_sequence=6)), _one(1))
    assert [{}, {}, {}, {}, {5: [7]}] == handed


def test_only_the_batch_before_is_known_as_it_was_staged() -> None:
    """Where that is another driver's, the catalog is read through all batches."""
    through: list[int] = []

    def open_view(terms: RoundTerms, _held: _Held) -> SegmentView:
        through.append(terms.through_sequence)
        return view_of()

    with ClaimHolder(open_view) as holder:
        for through_sequence, filed in ((4, 1), (6, 1), (7, 0)):
            number = holder.begin(replace(_TERMS, through_sequence=through_sequence))
            holder.ask(number, _one(0))
            assert holder.review(filed, in_order=False) is None
    assert [4, 6, 6] == through
