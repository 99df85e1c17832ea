"""Which rows of one question survive, in every case that is easy to get wrong."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from tallyweir.sinks.seen_ids.claim import Candidates, ClaimAnswer, RowClass, new_runs
from tallyweir.sinks.seen_ids.round_claims import RoundClaims
from tallyweir.sinks.seen_ids.segment import Columns, SegmentView, write_merged
from tallyweir.sinks.seen_ids.tests.catalog import (
    Row,
    as_written,
    ask,
    candidates_of,
    run_of,
    view_of,
)

NEW, DUPLICATE, CONFLICT = RowClass.SURVIVOR, RowClass.DUPLICATE, RowClass.CONFLICT
CORRECTION, UNKNOWN = RowClass.CORRECTION, RowClass.UNKNOWN
A, B, C = (5, 1), (5, 2), (9, 1)


def _ask(
    rows: list[Row],
    view: SegmentView,
    *,
    corrects: bool = False,
    keep_hashes: bool = True,
    only_corrects: list[bool] | None = None,
) -> list[int]:
    return ask(
        RoundClaims(view, corrects=corrects),
        rows,
        keep_hashes=keep_hashes,
        only_corrects=only_corrects,
    )


def test_the_first_position_wins_whatever_the_order_of_rows() -> None:
    """Two runs of a task must agree on the winner, or staged rows would not match."""
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
        classes = _ask(rows, view_of())
        assert dict(zip([row[:2] for row in rows], classes, strict=True)) == expected


def test_a_repeat_within_the_batch_is_a_duplicate() -> None:
    """The catalog does not know a batch's own rows: the claim must."""
    rows = [(0, 1, 0, A, 3), (0, 2, 0, A, 3)]
    assert _ask(rows, view_of()) == [NEW, DUPLICATE]


def test_another_payload_within_the_batch_is_a_conflict() -> None:
    """A producer that reuses an ID must not lose the second event in silence."""
    rows = [(0, 1, 0, A, 3), (0, 2, 0, A, 4), (0, 3, 0, A, 3)]
    assert _ask(rows, view_of()) == [NEW, CONFLICT, DUPLICATE]


def test_an_id_of_the_catalog_makes_all_its_rows_repeats() -> None:
    """No row of a known ID survives, and each is held against the catalog's hash."""
    rows = [(0, 1, 0, A, 3), (0, 2, 0, A, 4)]
    kept = view_of(run_of([A], payload_hash=4))
    assert _ask(rows, kept) == [CONFLICT, DUPLICATE]


def test_an_id_is_found_in_a_bucket_other_than_its_own() -> None:
    """An event that is sent again with another event time is still a repeat."""
    view = view_of(run_of([C], bucket=3600), run_of([A], bucket=7200))
    assert _ask([(0, 1, 3600, A, 3)], view) == [DUPLICATE]


def test_an_id_of_an_expired_bucket_is_new_again() -> None:
    """What the horizon has passed is as if never seen, whatever lies about of it."""
    view = view_of(run_of([A], bucket=3600), live_from_bucket=7200)
    assert _ask([(0, 1, 7200, A, 3)], view) == [NEW]


def test_ids_that_share_the_first_word_are_told_apart() -> None:
    """Half a fingerprint decides nothing, in the batch or in the catalog."""
    crafted = [(7, 3 * n + 1) for n in range(1_000)]
    pairs = [(7, n) for n in range(3_001)]
    rows: list[Row] = [(0, n, 0, pair, 1) for n, pair in enumerate(pairs)]
    random.Random(5).shuffle(rows)
    asked, order = candidates_of(rows)
    answer = RoundClaims(view_of(run_of(crafted))).ask(asked)
    known = set(crafted)
    expected = [DUPLICATE if row[3] in known else NEW for row in rows]
    assert as_written(answer.classes, order) == expected
    (run,) = new_runs(answer, asked)
    survivors = [tuple(pair) for pair in run.fingerprints.tolist()]
    assert survivors == sorted(set(pairs) - known)


def test_without_hashes_on_one_side_nothing_is_a_conflict() -> None:
    """A conflict needs two hashes; a missing one is no evidence."""
    rows = [(0, 1, 0, A, 3), (0, 2, 0, B, 4), (0, 3, 0, B, 5)]
    assert _ask(rows, view_of(run_of([A]))) == [DUPLICATE, NEW, CONFLICT]
    kept = view_of(run_of([A], payload_hash=9))
    assert _ask(rows, kept, keep_hashes=False) == [DUPLICATE, NEW, DUPLICATE]


def test_another_payload_under_a_known_id_corrects_where_that_is_asked_for() -> None:
    """The same payload is a repeat, and a new ID is new, as ever."""
    rows = [(0, 1, 0, A, 4), (0, 2, 0, B, 3), (0, 3, 0, C, 3)]
    asked, order = candidates_of(rows)
    kept = view_of(run_of([A, B], payload_hash=3))
    answer = RoundClaims(kept, corrects=True).ask(asked)
    assert as_written(answer.classes, order) == [CORRECTION, DUPLICATE, NEW]
    assert as_written(answer.survives, order) == [True, False, True]


def test_of_two_corrections_of_one_id_the_first_is_taken() -> None:
    """Nobody can tell which is right; not even the payload that was corrected is."""
    rows = [(0, 1, 0, A, 4), (0, 2, 0, A, 5), (0, 3, 0, A, 3), (0, 4, 0, A, 4)]
    kept = view_of(run_of([A], payload_hash=3))
    expected = [CORRECTION, CONFLICT, CONFLICT, DUPLICATE]
    assert _ask(rows, kept, corrects=True) == expected


def test_a_repeat_ahead_of_a_correction_keeps_it_out() -> None:
    """The first row of the ID says that nothing has changed."""
    rows = [(0, 1, 0, A, 3), (0, 2, 0, A, 4)]
    kept = view_of(run_of([A], payload_hash=3))
    assert _ask(rows, kept, corrects=True) == [DUPLICATE, CONFLICT]


def test_what_may_differ_from_the_known_payload_corrects_it() -> None:
    """No hash was kept: were it left out as a repeat, a correction could be lost."""
    assert _ask([(0, 1, 0, A, 3)], view_of(run_of([A])), corrects=True) == [CORRECTION]


def test_the_newest_payload_is_the_one_that_counts(tmp_path: Path) -> None:
    """A copy of what was corrected is a conflict, in separate parts and in merged."""
    rows = [(0, 1, 0, A, 3), (0, 2, 0, A, 4)]
    old = Columns.of_run(run_of([A, B], payload_hash=3))
    new = Columns.of_run(run_of([A], payload_hash=4))
    for parts in ((old, new), (write_merged(tmp_path, [old, new], 0),)):
        view = SegmentView(parts=parts, live_from_bucket=0)
        assert _ask(rows, view) == [CONFLICT, DUPLICATE]


def test_a_correction_that_moves_an_event_back_is_kept_as_long_as_the_event() -> None:
    """Else the payload that it corrected would count as new, or as the right one."""
    kept = run_of([A], bucket=7200, payload_hash=3)
    batch, _ = candidates_of([(0, 1, 3600, A, 4), (0, 2, 3600, B, 4)])
    runs = new_runs(RoundClaims(view_of(kept), corrects=True).ask(batch), batch)
    assert [(run.bucket, len(run)) for run in runs] == [(3600, 1), (7200, 1)]
    view = view_of(kept, *runs, live_from_bucket=7200)
    again = [(0, 3, 7200, A, 3), (0, 4, 7200, A, 4)]
    assert _ask(again, view) == [CONFLICT, DUPLICATE]


def test_a_correction_that_moves_an_event_on_is_filed_where_the_event_is() -> None:
    """Nothing older outlives it there either."""
    kept = view_of(run_of([A], bucket=3600, payload_hash=3))
    batch, _ = candidates_of([(0, 1, 7200, A, 4)])
    (run,) = new_runs(RoundClaims(kept, corrects=True).ask(batch), batch)
    assert 7200 == run.bucket


def test_a_new_id_from_before_1970_is_filed_under_its_own_bucket() -> None:
    """Buckets are below 0 then, and what was not found has none."""
    batch, _ = candidates_of([(0, 1, -7200, A, 4)])
    (run,) = new_runs(RoundClaims(view_of(), corrects=True).ask(batch), batch)
    assert -7200 == run.bucket


def test_a_row_that_only_corrects_asks_for_what_the_catalog_holds() -> None:
    """Of an ID that is new it asks for nothing; another row of that ID survives."""
    rows = [(0, 1, 0, A, 4), (0, 2, 0, B, 3), (0, 3, 0, C, 3), (0, 4, 0, C, 3)]
    kept = view_of(run_of([A, B], payload_hash=3))
    classes = _ask(rows, kept, corrects=True, only_corrects=[True, True, True, False])
    assert classes == [CORRECTION, DUPLICATE, UNKNOWN, NEW]


def test_rows_that_only_correct_are_held_against_each_other() -> None:
    """As all others are: the first of them wins, ahead of one that may do more."""
    rows = [(0, 1, 0, A, 4), (0, 2, 0, A, 5), (0, 3, 0, A, 4)]
    kept = view_of(run_of([A], payload_hash=3))
    classes = _ask(rows, kept, corrects=True, only_corrects=[True, False, True])
    assert classes == [CORRECTION, CONFLICT, DUPLICATE]


def test_a_task_may_have_nothing_but_rows_that_would_correct_what_is_not_there() -> (
    None
):
    """A task of filtered events is a task all the same."""
    rows = [(0, 1, 0, A, 4), (0, 2, 0, A, 5), (0, 3, 0, C, 3)]
    classes = _ask(rows, view_of(), corrects=True, only_corrects=[True] * 3)
    assert classes == [UNKNOWN] * 3


def test_survivors_become_one_sorted_run_per_bucket() -> None:
    """Runs hold each survivor once, with its hash, and nothing else."""
    rows = [
        (0, 1, 20, C, 1),
        (0, 2, 10, B, 2),
        (0, 3, 20, A, 3),
        (0, 4, 10, (9, 0), 4),
        (0, 5, 10, A, 3),
    ]
    batch, _ = candidates_of(rows)
    found = []
    for run in new_runs(RoundClaims(view_of()).ask(batch), batch):
        assert run.payload_hashes is not None
        pairs, hashes = run.fingerprints.tolist(), run.payload_hashes.tolist()
        found.append((run.bucket, pairs, hashes))
    assert found == [(10, [[5, 2], [9, 0]], [2, 4]), (20, [[5, 1], [9, 1]], [3, 1])]


def test_survivors_of_one_bucket_become_one_run_without_hashes_too() -> None:
    """The usual batch: all its events are of one hour."""
    rows = [(0, 1, 10, C, 1), (0, 2, 10, B, 2), (0, 3, 10, C, 3)]
    batch, _ = candidates_of(rows, keep_hashes=False)
    (run,) = new_runs(RoundClaims(view_of()).ask(batch), batch)
    assert (10, [[5, 2], [9, 1]]) == (run.bucket, run.fingerprints.tolist())
    assert run.payload_hashes is None


def test_rows_that_do_not_survive_have_no_run() -> None:
    """A batch of nothing but repeats adds nothing to the catalog."""
    batch, _ = candidates_of([(0, 1, 0, A, 3), (0, 2, 0, A, 4), (0, 3, 0, C, 3)])
    kept = view_of(run_of([A, C], payload_hash=3))
    assert new_runs(RoundClaims(kept).ask(batch), batch) == []


def test_a_task_without_rows_has_no_runs() -> None:
    """It may ask all the same, and holds nothing by that."""
    nothing, _ = candidates_of([])
    claims = RoundClaims(view_of(run_of([A])))
    answer = claims.ask(nothing)
    assert len(answer.classes) == 0
    assert new_runs(answer, nothing) == []
    assert ask(claims, [(0, 1, 0, C, 3)]) == [NEW]


def test_rows_that_are_not_in_order_are_a_programming_error() -> None:
    """IDs would be overlooked in columns that are searched as if they were sorted."""
    asked, _ = candidates_of([(0, 1, 0, A, 3), (0, 2, 0, C, 3)])
    assert asked.is_in_order()
    turned = asked.take(np.array([1, 0]))
    assert not turned.is_in_order()
    with pytest.raises(AssertionError, match="must be sorted"):
        RoundClaims(view_of()).ask(turned)


def test_rows_with_hashes_and_rows_without_are_not_joined() -> None:
    """One pipeline keeps hashes or none, as long as it has its name."""
    kept, _ = candidates_of([(0, 1, 0, A, 3)])
    none, _ = candidates_of([(0, 2, 0, C, 3)], keep_hashes=False)
    with pytest.raises(AssertionError, match="others have not"):
        Candidates.joined([kept, none])


def test_a_correction_needs_hashes() -> None:
    """Without them every repeat would be taken for a correction."""
    with pytest.raises(AssertionError, match="could not be told"):
        _ask([(0, 1, 0, A, 3)], view_of(), corrects=True, keep_hashes=False)


def test_dtypes_of_a_claim_are_stable() -> None:
    """Both travel as they are: one byte a row and eight."""
    for only_corrects in (None, [True]):
        asked, _ = candidates_of([(0, 1, 0, A, 3)], only_corrects=only_corrects)
        answer: ClaimAnswer = RoundClaims(view_of(), corrects=True).ask(asked)
        assert answer.classes.dtype == np.uint8
        assert answer.buckets.dtype == np.int64
