"""Which rows of a batch survive, in every case that is easy to get wrong."""

from __future__ import annotations

import random

import numpy as np
import pytest

from sinks.seen_ids.claim import NO_WINNER, Claim, RowClass, claim, new_runs
from sinks.seen_ids.segment import Columns, SegmentView, merge
from sinks.seen_ids.tests.catalog import candidates_of, run_of

NEW, DUPLICATE, CONFLICT = RowClass.SURVIVOR, RowClass.DUPLICATE, RowClass.CONFLICT
CORRECTION = RowClass.CORRECTION
A, B, C = (5, 1), (5, 2), (9, 1)


def _view(*runs: object, live_from_bucket: int = 0) -> SegmentView:
    parts = tuple(Columns.of_run(run) for run in runs)  # type: ignore[arg-type]
    return SegmentView(parts=parts, live_from_bucket=live_from_bucket)


def _answer(answer: Claim) -> tuple[list[int], list[int]]:
    return answer.classes.tolist(), answer.winners.tolist()


def test_the_first_position_wins_whatever_the_order_of_rows() -> None:
    """Two runs of a batch must agree on the winner, or staged rows would not match."""
    rows = [
        (1, 7, 0, A, 3),
        (0, 9, 0, A, 3),
        (0, 8, 0, A, 3),
        (0, 3, 0, C, 3),
        (1, 8, 0, B, 3),
    ]
    expected = {(0, 8): NEW, (0, 9): DUPLICATE, (1, 7): DUPLICATE}
    expected |= {(0, 3): NEW, (1, 8): NEW}
    rng = random.Random(3)
    for _ in range(50):
        rng.shuffle(rows)
        answer = claim(candidates_of(rows), _view())
        at = {(row[0], row[1]): index for index, row in enumerate(rows)}
        assert {p: answer.classes[i] for p, i in at.items()} == expected
        assert answer.winners[at[0, 9]] == answer.winners[at[1, 7]] == at[0, 8]
        assert answer.winners[at[0, 8]] == NO_WINNER


def test_a_repeat_within_the_batch_is_a_duplicate() -> None:
    """The catalog does not know a batch's own rows: the claim must."""
    answer = claim(candidates_of([(0, 1, 0, A, 3), (0, 2, 0, A, 3)]), _view())
    assert _answer(answer) == ([NEW, DUPLICATE], [NO_WINNER, 0])


def test_another_payload_within_the_batch_is_a_conflict() -> None:
    """A producer that reuses an ID must not lose the second event in silence."""
    rows = [(0, 1, 0, A, 3), (0, 2, 0, A, 4), (0, 3, 0, A, 3)]
    answer = claim(candidates_of(rows), _view())
    assert _answer(answer) == ([NEW, CONFLICT, DUPLICATE], [NO_WINNER, 0, 0])


def test_an_id_of_the_catalog_makes_all_its_rows_repeats() -> None:
    """No row of a known ID survives, and each is held against the catalog's hash."""
    rows = [(0, 1, 0, A, 3), (0, 2, 0, A, 4)]
    answer = claim(candidates_of(rows), _view(run_of([A], payload_hash=4)))
    assert _answer(answer) == ([CONFLICT, DUPLICATE], [NO_WINNER, NO_WINNER])


def test_an_id_is_found_in_a_bucket_other_than_its_own() -> None:
    """An event that is sent again with another event time is still a repeat."""
    view = _view(run_of([C], bucket=3600), run_of([A], bucket=7200))
    answer = claim(candidates_of([(0, 1, 3600, A, 3)]), view)
    assert _answer(answer) == ([DUPLICATE], [NO_WINNER])


def test_an_id_of_an_expired_bucket_is_new_again() -> None:
    """What the horizon has passed is as if never seen, on every node alike."""
    view = _view(run_of([A], bucket=3600), live_from_bucket=7200)
    answer = claim(candidates_of([(0, 1, 7200, A, 3)]), view)
    assert _answer(answer) == ([NEW], [NO_WINNER])


def test_ids_that_share_the_first_word_are_told_apart() -> None:
    """Half a fingerprint decides nothing, in the batch or in the catalog."""
    crafted = [(7, 3 * n + 1) for n in range(1_000)]
    view = _view(run_of(crafted))
    asked = [(7, n) for n in range(3_001)]
    rows = [(0, n, 0, pair, 1) for n, pair in enumerate(asked)]
    random.Random(5).shuffle(rows)
    answer = claim(candidates_of(rows), view)
    known = set(crafted)
    expected = [DUPLICATE if row[3] in known else NEW for row in rows]
    assert answer.classes.tolist() == expected
    survivors = [rows[at][3] for at in answer.survivors]
    assert survivors == sorted(set(asked) - known)


def test_without_hashes_on_one_side_nothing_is_a_conflict() -> None:
    """A conflict needs two hashes; a missing one is no evidence."""
    rows = [(0, 1, 0, A, 3), (0, 2, 0, B, 4), (0, 3, 0, B, 5)]
    answer = claim(candidates_of(rows), _view(run_of([A])))
    assert answer.classes.tolist() == [DUPLICATE, NEW, CONFLICT]
    kept = _view(run_of([A], payload_hash=9))
    answer = claim(candidates_of(rows, keep_hashes=False), kept)
    assert answer.classes.tolist() == [DUPLICATE, NEW, DUPLICATE]


def test_another_payload_under_a_known_id_corrects_where_that_is_asked_for() -> None:
    """The same payload is a repeat, and a new ID is new, as ever."""
    rows = [(0, 1, 0, A, 4), (0, 2, 0, B, 3), (0, 3, 0, C, 3)]
    kept = _view(run_of([A, B], payload_hash=3))
    answer = claim(candidates_of(rows), kept, corrects=True)
    assert _answer(answer) == ([CORRECTION, DUPLICATE, NEW], [NO_WINNER] * 3)
    assert answer.survivors.tolist() == [0, 2]


def test_of_two_corrections_of_one_id_the_first_is_taken() -> None:
    """Nobody can tell which is right; not even the payload that was corrected is."""
    rows = [(0, 1, 0, A, 4), (0, 2, 0, A, 5), (0, 3, 0, A, 3), (0, 4, 0, A, 4)]
    kept = _view(run_of([A], payload_hash=3))
    answer = claim(candidates_of(rows), kept, corrects=True)
    classes = [CORRECTION, CONFLICT, CONFLICT, DUPLICATE]
    assert _answer(answer) == (classes, [NO_WINNER, 0, 0, 0])


def test_a_repeat_ahead_of_a_correction_keeps_it_out() -> None:
    """The first row of the ID says that nothing has changed."""
    rows = [(0, 1, 0, A, 3), (0, 2, 0, A, 4)]
    kept = _view(run_of([A], payload_hash=3))
    answer = claim(candidates_of(rows), kept, corrects=True)
    assert _answer(answer) == ([DUPLICATE, CONFLICT], [NO_WINNER] * 2)


def test_what_may_differ_from_the_known_payload_corrects_it() -> None:
    """No hash was kept: were it left out as a repeat, a correction could be lost."""
    answer = claim(candidates_of([(0, 1, 0, A, 3)]), _view(run_of([A])), corrects=True)
    assert answer.classes.tolist() == [CORRECTION]


def test_the_newest_payload_is_the_one_that_counts() -> None:
    """A copy of what was corrected is a conflict, in separate parts and in merged."""
    rows = [(0, 1, 0, A, 3), (0, 2, 0, A, 4)]
    old = Columns.of_run(run_of([A, B], payload_hash=3))
    new = Columns.of_run(run_of([A], payload_hash=4))
    for parts in ((old, new), (merge([old, new], 0),)):
        view = SegmentView(parts=parts, live_from_bucket=0)
        answer = claim(candidates_of(rows), view)
        assert answer.classes.tolist() == [CONFLICT, DUPLICATE]


def test_a_correction_that_moves_an_event_back_is_kept_as_long_as_the_event() -> None:
    """Else the payload that it corrected would count as new, or as the right one."""
    kept = run_of([A], bucket=7200, payload_hash=3)
    batch = candidates_of([(0, 1, 3600, A, 4), (0, 2, 3600, B, 4)])
    runs = new_runs(claim(batch, _view(kept), corrects=True), batch)
    assert [(run.bucket, len(run)) for run in runs] == [(3600, 1), (7200, 1)]
    view = _view(kept, *runs, live_from_bucket=7200)
    again = candidates_of([(0, 3, 7200, A, 3), (0, 4, 7200, A, 4)])
    assert claim(again, view).classes.tolist() == [CONFLICT, DUPLICATE]


def test_survivors_become_one_sorted_run_per_bucket_and_shard() -> None:
    """Runs hold each survivor once, with its hash, and nothing else."""
    rows = [
        (0, 1, 20, C, 1),
        (0, 2, 10, B, 2),
        (0, 3, 20, A, 3),
        (0, 4, 10, (9, 0), 4),
        (0, 5, 10, A, 3),
    ]
    batch = candidates_of(rows)
    batch.shard[:] = [0, 1, 0, 0, 0]
    runs = new_runs(claim(batch, _view()), batch)
    found = [
        (run.bucket, run.shard, run.fingerprints.tolist(), run.payload_hashes)
        for run in runs
    ]
    expected = [
        (10, 0, [[9, 0]], [4]),
        (10, 1, [[5, 2]], [2]),
        (20, 0, [[5, 1], [9, 1]], [3, 1]),
    ]
    assert [(b, s, f, list(h)) for b, s, f, h in found if h is not None] == expected


def test_an_empty_batch_has_no_runs() -> None:
    """A task may get no row at all."""
    batch = candidates_of([])
    answer = claim(batch, _view(run_of([A])))
    assert len(answer.classes) == 0
    assert new_runs(answer, batch) == []


def test_a_position_that_comes_twice_is_a_programming_error() -> None:
    """Such a row would be dropped as a repeat of itself."""
    rows = [(0, 1, 0, A, 3), (0, 1, 0, A, 3)]
    with pytest.raises(AssertionError, match="handed in twice"):
        claim(candidates_of(rows), _view())


def test_dtypes_of_a_claim_are_stable() -> None:
    """Classes travel as one byte a row."""
    answer = claim(candidates_of([(0, 1, 0, A, 3)]), _view())
    assert answer.classes.dtype == np.uint8
    assert answer.survivors.dtype == np.int64
