"""Of copies of an ID that one survives which survived before, whoever asks first."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations

import numpy as np
import pytest

from tallyweir.sinks.seen_ids.claim import RowClass
from tallyweir.sinks.seen_ids.claim_holder import RoundTerms
from tallyweir.sinks.seen_ids.segment import Columns, SegmentView
from tallyweir.sinks.seen_ids.tests.catalog import candidates_of, run_of, view_of
from tallyweir.spark_jobs.replay.replayed_ids import RecordedClaims

_TERMS = RoundTerms(through_sequence=4, live_from_bucket=0, corrects=False)
_ID, _OTHER, _KNOWN = (5, 1), (9, 1), (7, 1)
#: Rows as (place, offset, bucket, ID, payload): three copies of one ID, one of another
#: payload; an ID of its own; and two copies of one that the catalog knows.
_ROWS = [
    (0, 1, 0, _ID, 3),
    (0, 2, 0, _OTHER, 3),
    (1, 1, 0, _ID, 3),
    (1, 7, 0, _ID, 8),
    (0, 4, 0, _KNOWN, 3),
    (1, 4, 0, _KNOWN, 3),
]


def _open(_terms: RoundTerms, _held: Mapping[int, Columns]) -> SegmentView:
    return view_of(run_of([_KNOWN], payload_hash=3))


def _fates(
    losers: list[tuple[int, int]], order: tuple[int, ...]
) -> dict[tuple[int, int], RowClass]:
    """Let each place ask for its own rows, in the order given, until it is settled."""
    with RecordedClaims(_open) as holder:
        holder.follow(losers)
        number: int | None = holder.begin(_TERMS)
        while number is not None:
            found: dict[tuple[int, int], RowClass] = {}
            for place in order:
                asked, _ = candidates_of([row for row in _ROWS if row[0] == place])
                answer = holder.ask(number, asked)
                found |= {
                    (place, offset): RowClass(row_class)
                    for offset, row_class in zip(
                        asked.offset.tolist(), answer.classes.tolist(), strict=True
                    )
                }
            filed = sum(one is RowClass.SURVIVOR for one in found.values())
            number = holder.review(filed, in_order=False)
    return found


@pytest.mark.parametrize("order", list(permutations((0, 1))))
@pytest.mark.parametrize("winner", [(0, 1), (1, 1), (1, 7)])
def test_who_won_then_wins_again(
    winner: tuple[int, int], order: tuple[int, ...]
) -> None:
    """The others are what they are beside it: copies, or conflicts."""
    copies = [(0, 1), (1, 1), (1, 7)]
    known = [(0, 4), (1, 4)]
    losers = [one for one in copies if one != winner] + known

    found = _fates(losers, order)

    assert RowClass.SURVIVOR is found.pop((0, 2))
    assert RowClass.SURVIVOR is found.pop(winner)
    assert {RowClass.DUPLICATE} == {found.pop(one) for one in known}
    payloads = {(place, offset): said for place, offset, _, _, said in _ROWS}
    assert found == {
        one: RowClass.DUPLICATE
        if payloads[one] == payloads[winner]
        else RowClass.CONFLICT
        for one in losers
        if one not in known
    }


@pytest.mark.parametrize("order", list(permutations((0, 1))))
def test_no_event_is_lost_because_the_ledger_says_so(order: tuple[int, ...]) -> None:
    """A ledger in which every copy lost, and a lone one too, is not believed."""
    everything = [(place, offset) for place, offset, *_ in _ROWS]

    found = _fates(everything, order)

    survivors = [one for one, fate in found.items() if fate is RowClass.SURVIVOR]
    assert [(0, 1), (0, 2)] == sorted(survivors)


def test_buckets_stay_with_their_rows() -> None:
    """Rows are put behind others to ask, and answered in their own order."""
    rows = [(0, offset, 10 * offset, _ID, 3) for offset in (1, 2, 3)]
    with RecordedClaims(_open) as holder:
        holder.follow([(0, 1), (0, 3)])
        asked, _ = candidates_of(rows)
        answer = holder.ask(holder.begin(_TERMS), asked)
    survivors = np.flatnonzero(answer.classes == RowClass.SURVIVOR)
    assert [2] == asked.offset[survivors].tolist()
    assert asked.bucket.tolist() == answer.buckets.tolist()
