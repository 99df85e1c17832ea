"""One round after the other, from any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import pytest

from tallyweir.sinks.protocol.errors import FatalError, RetryableError, TallyweirError
from tallyweir.sinks.seen_ids import claim_holder
from tallyweir.sinks.seen_ids.claim import Candidates, RowClass
from tallyweir.sinks.seen_ids.claim_holder import ClaimHolder, RoundTerms
from tallyweir.sinks.seen_ids.segment import Columns, SegmentView
from tallyweir.sinks.seen_ids.tests.catalog import Pair, candidates_of, run_of, view_of

NEW, DUPLICATE = RowClass.SURVIVOR, RowClass.DUPLICATE
CORRECTION, CONFLICT = RowClass.CORRECTION, RowClass.CONFLICT
A, C = (5, 1), (9, 1)
_TERMS = RoundTerms(through_sequence=4, live_from_bucket=0, corrects=False)
_PATIENCE_S = 60.0

_Held = Mapping[int, Columns]


def _empty(_terms: RoundTerms, _held: _Held) -> SegmentView:
    return view_of()


def _one(place: int, pair: Pair = A, payload_hash: int = 3) -> Candidates:
    return candidates_of([(place, 1, 0, pair, payload_hash)])[0]


def _ask(holder: ClaimHolder, number: int, asked: Candidates) -> int:
    (row_class,) = holder.ask(number, asked).classes.tolist()
    return int(row_class)


def _refused(holder: ClaimHolder, number: int) -> str:
    with pytest.raises(TallyweirError) as raised:
        holder.ask(number, _one(0))
    return raised.value.code


def test_a_round_is_held_against_the_catalog_of_its_terms() -> None:
    """Each round has a view of its own, which is opened once."""
    opened: list[RoundTerms] = []

    def open_view(terms: RoundTerms, _held: _Held) -> SegmentView:
        opened.append(terms)
        runs = [run_of([A], payload_hash=3)] if terms.through_sequence else []
        return view_of(*runs)

    later = replace(_TERMS, through_sequence=0, live_from_bucket=7)
    with ClaimHolder(open_view) as holder:
        number = holder.begin(_TERMS)
        assert DUPLICATE == _ask(holder, number, _one(0))
        assert NEW == _ask(holder, number, _one(0, C))
        number = holder.begin(later)
        assert NEW == _ask(holder, number, _one(0))
        number = holder.begin(replace(_TERMS, corrects=True))
        assert CORRECTION == _ask(holder, number, _one(0, payload_hash=4))
    assert opened == [_TERMS, later, replace(_TERMS, corrects=True)]


def test_a_question_of_a_round_that_is_over_is_refused() -> None:
    """A leftover task must not change what the others are told."""
    with ClaimHolder(_empty) as holder:
        assert "CLAIM_ROUND_OVER" == _refused(holder, 1)
        former = holder.begin(_TERMS)
        assert NEW == _ask(holder, former, _one(1))
        number = holder.begin(_TERMS)
        assert number != former
        assert "CLAIM_ROUND_OVER" == _refused(holder, former)
        assert "CLAIM_ROUND_OVER" == _refused(holder, number + 1)
        assert NEW == _ask(holder, number, _one(2))
        again = holder.review(0, in_order=False)
        assert again is not None
        assert "CLAIM_ROUND_OVER" == _refused(holder, number)
        assert NEW == _ask(holder, again, _one(2))
    assert "CLAIM_ROUND_OVER" == _refused(holder, again)


def test_who_asks_too_late_is_told_that_nobody_waits() -> None:
    """It is no failure of the batch, and trying again would not help."""
    with ClaimHolder(_empty) as holder, pytest.raises(FatalError) as raised:
        holder.ask(7, _one(0))
    assert "in round 7" in raised.value.saw


def test_a_round_that_begins_forgets_what_the_one_before_it_claimed() -> None:
    """A batch that was not published leaves nothing."""
    with ClaimHolder(_empty) as holder:
        for order in ((1, 0), (0, 1)):
            number = holder.begin(_TERMS)
            asked = [_ask(holder, number, _one(at)) for at in order]
            assert [NEW, DUPLICATE] == asked


def test_what_is_staged_of_a_round_may_be_published() -> None:
    """Each ID that is held is filed, and nobody asks for an order."""
    with ClaimHolder(_empty) as holder:
        number = holder.begin(_TERMS)
        assert holder.review(0, in_order=True) is None
        assert [NEW, DUPLICATE] == [_ask(holder, number, _one(at)) for at in (1, 0)]
        assert NEW == _ask(holder, number, _one(2, C))
        assert holder.review(2, in_order=False) is None
        assert NEW == _ask(holder, number, _one(1))


@pytest.mark.parametrize("filed", [0, 2])
def test_ids_that_are_held_and_not_filed_make_the_batch_begin_again(
    filed: int,
) -> None:
    """A task that ran twice has left them, and who lost to them must ask anew."""
    with ClaimHolder(_empty) as holder:
        number = holder.begin(_TERMS)
        assert [NEW, DUPLICATE] == [_ask(holder, number, _one(at)) for at in (0, 1)]
        again = holder.review(filed, in_order=True)
        assert again is not None
        assert again > number
        assert NEW == _ask(holder, again, _one(1))
        assert holder.review(1, in_order=False) is None


def test_where_order_counts_the_first_position_wins_in_the_next_round() -> None:
    """Whoever asks first in it."""
    with ClaimHolder(_empty) as holder:
        number = holder.begin(_TERMS)
        assert [NEW, DUPLICATE] == [_ask(holder, number, _one(at)) for at in (1, 0)]
        again = holder.review(1, in_order=True)
        assert again is not None
        assert [DUPLICATE, NEW] == [_ask(holder, again, _one(at)) for at in (1, 0)]
        assert holder.review(1, in_order=True) is None


def test_a_round_that_begins_again_has_the_terms_of_the_one_before_it() -> None:
    """The batches that it is held against are the same."""
    opened: list[RoundTerms] = []

    def open_view(terms: RoundTerms, _held: _Held) -> SegmentView:
        opened.append(terms)
        return view_of(run_of([A], payload_hash=3))

    terms = replace(_TERMS, corrects=True)
    with ClaimHolder(open_view) as holder:
        number = holder.begin(terms)
        corrections = [CORRECTION, CONFLICT]
        copies = [_one(2, payload_hash=4), _one(1, payload_hash=5)]
        assert corrections == [_ask(holder, number, copy) for copy in copies]
        again = holder.review(1, in_order=True)
        assert again is not None
        assert corrections[::-1] == [_ask(holder, again, copy) for copy in copies]
    assert [terms] * 2 == opened


def test_the_batch_before_is_known_before_it_is_committed() -> None:
    """Its IDs are those that its last round gave away."""
    opened: list[int] = []

    def open_view(terms: RoundTerms, _held: _Held) -> SegmentView:
        opened.append(terms.through_sequence)
        return view_of(run_of([C], payload_hash=3))

    with ClaimHolder(open_view) as holder:
        number = holder.begin(_TERMS)
        assert [NEW, DUPLICATE] == [_ask(holder, number, _one(0, p)) for p in (A, C)]
        assert holder.review(1, in_order=False) is None
        number = holder.begin(replace(_TERMS, through_sequence=5))
        known = [_one(7), _one(7, payload_hash=4), _one(7, C), _one(7, (6, 1))]
        told = [_ask(holder, number, one) for one in known]
        assert [DUPLICATE, CONFLICT, DUPLICATE, NEW] == told
        # Two batches on, it must have been committed.
        assert holder.review(1, in_order=False) is None
        number = holder.begin(replace(_TERMS, through_sequence=6))
        assert [NEW, DUPLICATE] == [_ask(holder, number, _one(8, p)) for p in (A, C)]
    assert [4, 4, 5] == opened


def test_a_batch_that_is_staged_again_does_not_meet_its_own_ids() -> None:
    """A table has refused a row of it, while the one after it was being staged."""
    with ClaimHolder(_empty) as holder:
        for through_sequence in (4, 5, 4):
            terms = replace(_TERMS, through_sequence=through_sequence)
            number = holder.begin(terms)
            expected = NEW if through_sequence == 4 else DUPLICATE
            assert expected == _ask(holder, number, _one(0))
            assert holder.review(int(expected == NEW), in_order=False) is None


def test_ids_of_the_batch_before_expire_as_all_others_do() -> None:
    """The watermark may have moved past their bucket."""

    def open_view(terms: RoundTerms, _held: _Held) -> SegmentView:
        return view_of(live_from_bucket=terms.live_from_bucket)

    with ClaimHolder(open_view) as holder:
        number = holder.begin(_TERMS)
        assert NEW == _ask(holder, number, _one(0))
        assert holder.review(1, in_order=False) is None
        after = replace(_TERMS, through_sequence=5, live_from_bucket=1)
        assert NEW == _ask(holder, holder.begin(after), _one(1))


def test_what_stands_in_the_catalog_stays_as_it_is_there() -> None:
    """A row that repeats it holds nothing, and has another bucket."""

    def open_view(_terms: RoundTerms, _held: _Held) -> SegmentView:
        return view_of(run_of([A], bucket=7, payload_hash=3))

    terms = replace(_TERMS, corrects=True)
    with ClaimHolder(open_view) as holder:
        number = holder.begin(terms)
        assert DUPLICATE == _ask(holder, number, _one(0))
        assert holder.review(0, in_order=False) is None
        number = holder.begin(replace(terms, through_sequence=5))
        answer = holder.ask(number, _one(1, payload_hash=4))
        assert ([CORRECTION], [7]) == (answer.classes.tolist(), answer.buckets.tolist())


def test_a_batch_whose_round_was_not_approved_is_read_from_the_catalog() -> None:
    """What its tasks have claimed is not what was filed."""
    opened: list[int] = []

    def open_view(terms: RoundTerms, _held: _Held) -> SegmentView:
        opened.append(terms.through_sequence)
        return view_of()

    with ClaimHolder(open_view) as holder:
        number = holder.begin(_TERMS)
        assert NEW == _ask(holder, number, _one(0))
        number = holder.begin(replace(_TERMS, through_sequence=5))
        assert NEW == _ask(holder, number, _one(0))
    assert [4, 5] == opened


def test_nothing_is_reviewed_that_has_not_begun() -> None:
    """There is no round that it could be said of."""
    with (
        ClaimHolder(_empty) as holder,
        pytest.raises(AssertionError, match="no round to review"),
    ):
        holder.review(0, in_order=False)


def test_an_error_while_the_catalog_is_read_reaches_all_who_ask() -> None:
    """And the next round reads it anew."""
    error = RetryableError("POSTGRES_UNREACHABLE", saw="", why="", fix="")
    failures = [error, None]

    def open_view(_terms: RoundTerms, _held: _Held) -> SegmentView:
        failure = failures.pop(0)
        if failure is not None:
            raise failure
        return view_of()

    with ClaimHolder(open_view) as holder:
        number = holder.begin(_TERMS)
        for _ in range(2):
            assert "POSTGRES_UNREACHABLE" == _refused(holder, number)
        number = holder.begin(_TERMS)
        assert NEW == _ask(holder, number, _one(0))


def test_a_round_begins_while_the_catalog_is_being_read() -> None:
    """The driver goes on; whoever asks waits."""
    readable = threading.Event()

    def open_view(_terms: RoundTerms, _held: _Held) -> SegmentView:
        assert readable.wait(_PATIENCE_S)
        return view_of()

    with ClaimHolder(open_view) as holder, ThreadPoolExecutor(1) as tasks:
        number = holder.begin(_TERMS)
        answer = tasks.submit(_ask, holder, number, _one(0))
        assert not answer.done()
        readable.set()
        assert NEW == answer.result(_PATIENCE_S)


def test_threads_that_ask_at_once_share_each_id_out_once() -> None:
    """Of eight tasks with the same thousand IDs each one has some or none."""
    tasks, ids = 8, 1_000
    asked = [
        candidates_of([(place, at, 0, (at, at), 3) for at in range(ids)])[0]
        for place in range(tasks)
    ]
    start = threading.Barrier(tasks)

    def work(holder: ClaimHolder, number: int, place: int) -> list[list[bool]]:
        start.wait(_PATIENCE_S)
        half = ids // 2
        parts = [slice(0, half), slice(half, ids)]
        if place % 2:
            parts.reverse()
        told = np.zeros((2, ids), dtype=np.bool_)
        for row in told:
            for part in parts:
                rows = asked[place].take(np.arange(ids)[part])
                row[part] = holder.ask(number, rows).survives
        found: list[list[bool]] = told.tolist()
        return found

    with ClaimHolder(_empty) as holder, ThreadPoolExecutor(tasks) as pool:
        number = holder.begin(_TERMS)
        told = np.array(
            [
                answer.result(_PATIENCE_S)
                for answer in [
                    pool.submit(work, holder, number, place) for place in range(tasks)
                ]
            ]
        )
    assert (told[:, 0] == told[:, 1]).all(), "who asked again was told otherwise"
    assert (told[:, 0].sum(axis=0) == 1).all()


@dataclass
class _Awaited:
    """A future that says when somebody begins to wait for it."""

    future: Future[SegmentView]
    on_wait: Callable[[], None]

    def result(self) -> SegmentView:
        self.on_wait()
        return self.future.result(_PATIENCE_S)


def _say_who_waits(
    monkeypatch: pytest.MonkeyPatch, on_wait: Callable[[], None]
) -> None:
    class Announcing:
        def __init__(self, workers: int, *, thread_name_prefix: str) -> None:
            self._pool = ThreadPoolExecutor(workers, thread_name_prefix)

        def submit(self, work: Callable[..., SegmentView], *args: object) -> _Awaited:
            return _Awaited(self._pool.submit(work, *args), on_wait)

        def shutdown(self, *, cancel_futures: bool) -> None:
            self._pool.shutdown(cancel_futures=cancel_futures)

    monkeypatch.setattr(claim_holder, "ThreadPoolExecutor", Announcing)


def test_a_round_that_ends_while_a_task_waits_for_the_catalog_does_not_answer_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It had asked in time, and its answer would still be of no use."""
    began: list[int] = []

    def begin_another() -> None:
        if not began:
            began.append(holder.begin(_TERMS))

    _say_who_waits(monkeypatch, begin_another)
    with ClaimHolder(_empty) as holder:
        number = holder.begin(_TERMS)
        assert "CLAIM_ROUND_OVER" == _refused(holder, number)
        assert NEW == _ask(holder, began[0], _one(1))


def test_who_waits_for_a_catalog_that_nobody_will_read_is_told_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The holder ends while an older round's catalog is still being read."""
    waits, readable = threading.Event(), threading.Event()
    _say_who_waits(monkeypatch, waits.set)

    def open_view(_terms: RoundTerms, _held: _Held) -> SegmentView:
        assert readable.wait(_PATIENCE_S)
        return view_of()

    with ThreadPoolExecutor(1) as tasks:
        with ClaimHolder(open_view) as holder:
            holder.begin(_TERMS)
            number = holder.begin(_TERMS)
            answer = tasks.submit(holder.ask, number, _one(0))
            assert waits.wait(_PATIENCE_S)
            # The reading ends only when nobody waits for the second any more.
            answer.add_done_callback(lambda _answer: readable.set())
        with pytest.raises(FatalError, match="CLAIM_ROUND_OVER"):
            answer.result(_PATIENCE_S)
