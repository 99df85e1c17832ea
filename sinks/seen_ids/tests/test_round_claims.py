"""What several questions of one round are told, in any order and as often as asked."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tallyweir.sinks.seen_ids import round_claims
from tallyweir.sinks.seen_ids.claim import RowClass, new_runs
from tallyweir.sinks.seen_ids.ordering import BoolArray, I64Array, U64Array, find_pairs
from tallyweir.sinks.seen_ids.round_claims import RoundClaims
from tallyweir.sinks.seen_ids.segment import SegmentView
from tallyweir.sinks.seen_ids.tests.catalog import (
    Pair,
    Row,
    ask,
    candidates_of,
    run_of,
    view_of,
)

NEW, DUPLICATE, CONFLICT = RowClass.SURVIVOR, RowClass.DUPLICATE, RowClass.CONFLICT
CORRECTION, UNKNOWN = RowClass.CORRECTION, RowClass.UNKNOWN
A, B, C = (5, 1), (5, 2), (9, 1)

#: Three tasks of one batch; every ID is in more than one of them.
_TASKS: list[list[Row]] = [
    [(0, 1, 0, A, 3), (0, 2, 0, B, 3), (0, 3, 0, A, 4)],
    [(1, 1, 0, B, 3), (1, 2, 0, C, 5), (1, 3, 0, A, 4)],
    [(2, 1, 0, C, 6), (2, 2, 0, A, 3), (2, 3, 0, C, 5)],
]
_KEPT = run_of([A], payload_hash=3)


def _one(place: int, offset: int, pair: Pair = A, payload_hash: int = 3) -> list[Row]:
    return [(place, offset, 0, pair, payload_hash)]


@pytest.mark.parametrize("corrects", [False, True])
@pytest.mark.parametrize("view", [view_of(), view_of(_KEPT)], ids=["new", "known"])
@pytest.mark.parametrize("first", range(3))
def test_a_task_that_asks_again_is_told_the_same_whatever_was_asked_between(
    first: int, view: SegmentView, *, corrects: bool
) -> None:
    """Spark runs tasks again, and may have started others meanwhile."""
    claims = RoundClaims(view, corrects=corrects)
    told = {task: ask(claims, _TASKS[task]) for task in (first, (first + 1) % 3)}
    for task in (first, (first + 1) % 3, (first + 2) % 3, first, (first + 1) % 3):
        answer = ask(claims, _TASKS[task])
        assert told.setdefault(task, answer) == answer


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_every_new_id_survives_once_in_all_tasks_together(
    order: tuple[int, ...],
) -> None:
    """Twice would count an event twice, never would lose it."""
    claims = RoundClaims(view_of())
    runs = []
    for task in order:
        asked, _ = candidates_of(_TASKS[task])
        runs += new_runs(claims.ask(asked), asked)
    kept = [tuple(pair) for run in runs for pair in run.fingerprints.tolist()]
    assert sorted(kept) == [A, B, C]


@pytest.mark.parametrize(
    ("first", "second", "is_overtaken"),
    [
        ((0, 1), (0, 2), False),
        ((0, 2), (0, 1), True),
        ((0, 9), (1, 1), False),
        ((1, 1), (0, 9), True),
        ((0, 1), (0, 1), False),
    ],
)
def test_who_asks_first_survives_and_who_was_earlier_is_overtaken(
    first: tuple[int, int], second: tuple[int, int], *, is_overtaken: bool
) -> None:
    """Positions are compared by partition, then by offset; a retry overtakes nobody."""
    claims = RoundClaims(view_of())
    assert not claims.is_overtaken
    assert [NEW] == ask(claims, _one(*first))
    assert not claims.is_overtaken
    answer = ask(claims, _one(*second))
    assert [NEW if first == second else DUPLICATE] == answer
    assert is_overtaken == claims.is_overtaken
    assert [NEW] == ask(claims, _one(*first))
    assert is_overtaken == claims.is_overtaken


def test_another_payload_in_another_task_is_a_conflict() -> None:
    """It is held against the payload of the row that has survived."""
    claims = RoundClaims(view_of())
    assert [NEW] == ask(claims, _one(0, 5))
    rows = [(1, 1, 0, A, 4), (1, 2, 0, A, 3), (1, 3, 0, B, 4)]
    assert [CONFLICT, DUPLICATE, NEW] == ask(claims, rows)
    # What had lost does not become what others are held against.
    assert [CONFLICT] == ask(claims, _one(2, 1, payload_hash=4))


def test_without_hashes_a_repeat_in_another_task_is_a_duplicate() -> None:
    """Nobody has looked at the payloads."""
    claims = RoundClaims(view_of())
    assert [NEW] == ask(claims, _one(0, 5), keep_hashes=False)
    other = _one(1, 1, payload_hash=4)
    assert [DUPLICATE] == ask(claims, other, keep_hashes=False)


def test_what_the_catalog_holds_is_told_alike_and_overtakes_nobody() -> None:
    """No row of it survives, so it is all the same who asks first."""
    claims = RoundClaims(view_of(_KEPT))
    for place, offset in ((1, 1), (0, 9), (0, 1), (1, 1)):
        assert [DUPLICATE] == ask(claims, _one(place, offset))
        assert [CONFLICT] == ask(claims, _one(place, offset + 1, payload_hash=4))
    assert not claims.is_overtaken


def test_of_corrections_in_several_tasks_the_first_to_ask_is_taken() -> None:
    """The payload that was corrected has no more right than any other."""
    claims = RoundClaims(view_of(_KEPT), corrects=True)
    assert [CORRECTION] == ask(claims, _one(1, 1, payload_hash=4))
    assert [CONFLICT] == ask(claims, _one(2, 1, payload_hash=3))
    assert [DUPLICATE] == ask(claims, _one(2, 2, payload_hash=4))
    assert not claims.is_overtaken
    assert [CONFLICT] == ask(claims, _one(0, 1, payload_hash=5))
    assert claims.is_overtaken
    assert [CORRECTION] == ask(claims, _one(1, 1, payload_hash=4))


def test_a_repeat_that_asks_first_keeps_corrections_of_other_tasks_out() -> None:
    """It says that nothing has changed, and holds the ID by its position."""
    claims = RoundClaims(view_of(_KEPT), corrects=True)
    assert [DUPLICATE] == ask(claims, _one(1, 1))
    assert [CONFLICT] == ask(claims, _one(2, 1, payload_hash=4))
    assert [DUPLICATE] == ask(claims, _one(1, 1))
    assert not claims.is_overtaken
    assert [CONFLICT] == ask(claims, _one(0, 1, payload_hash=4))
    assert claims.is_overtaken


def test_what_only_corrects_holds_no_id_that_is_new() -> None:
    """A filtered event must not keep the one out that is not filtered."""
    claims = RoundClaims(view_of(_KEPT), corrects=True)
    rows = [(0, 1, 0, C, 3), (0, 2, 0, A, 4)]
    assert [UNKNOWN, CORRECTION] == ask(claims, rows, only_corrects=[True, True])
    assert [NEW, CONFLICT] == ask(claims, [(1, 1, 0, C, 5), (1, 2, 0, A, 5)])
    assert [UNKNOWN, CORRECTION] == ask(claims, rows, only_corrects=[True, True])
    assert not claims.is_overtaken


def test_a_correction_is_filed_alike_whenever_it_is_asked_for() -> None:
    """A task that is run again must stage the same runs."""
    kept = view_of(run_of([A], bucket=7200, payload_hash=3))
    claims = RoundClaims(kept, corrects=True)
    asked, _ = candidates_of([(0, 1, 3600, A, 4), (0, 2, 10_800, C, 4)])
    for _ in range(2):
        runs = new_runs(claims.ask(asked), asked)
        assert [7200, 10_800] == [run.bucket for run in runs]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("former_order", [(2, 1, 0), (1, 0, 2)])
def test_after_a_former_round_the_first_positions_win_whoever_asks_first(
    former_order: tuple[int, ...], order: tuple[int, ...]
) -> None:
    """So a run gives the same rows whenever it is run."""
    former = RoundClaims(view_of())
    for task in former_order:
        ask(former, _TASKS[task])
    assert former.is_overtaken
    claims = RoundClaims(view_of(), former=former)
    told = {task: ask(claims, _TASKS[task]) for task in order}
    assert told == {
        0: [NEW, NEW, CONFLICT],
        1: [DUPLICATE, NEW, CONFLICT],
        2: [CONFLICT, DUPLICATE, DUPLICATE],
    }
    assert not claims.is_overtaken


@pytest.mark.parametrize(
    ("payloads", "expected"),
    [
        ((4, 5, 4), [CORRECTION, CONFLICT, DUPLICATE]),
        ((3, 5, 3), [DUPLICATE, CONFLICT, DUPLICATE]),
        ((5, 3, 4), [CORRECTION, CONFLICT, CONFLICT]),
    ],
)
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_after_a_former_round_the_first_position_decides_upon_a_correction(
    order: tuple[int, ...], payloads: tuple[int, ...], expected: list[int]
) -> None:
    """Even when it says that nothing has changed, and had lost in the former round."""
    tasks = [_one(0, at, payload_hash=payload) for at, payload in enumerate(payloads)]
    former = RoundClaims(view_of(_KEPT), corrects=True)
    for task in (2, 1, 0):
        ask(former, tasks[task])
    assert former.is_overtaken
    claims = RoundClaims(view_of(_KEPT), corrects=True, former=former)
    told = {task: ask(claims, tasks[task])[0] for task in order}
    assert [told[task] for task in range(3)] == expected
    assert not claims.is_overtaken


def test_a_former_round_in_which_nobody_asked_changes_nothing() -> None:
    """A task may have had nothing but dead letters."""
    assert RoundClaims(view_of()).first_positions() is None
    claims = RoundClaims(view_of(), former=RoundClaims(view_of()))
    assert [NEW] == ask(claims, _one(1, 1))


def test_the_first_of_all_positions_is_known_after_many_have_overtaken() -> None:
    """The one that asked last may be the first, or lie between two that asked."""
    claims = RoundClaims(view_of())
    for offset in (7, 5, 9, 3, 4):
        ask(claims, [(0, offset, 0, A, offset), (0, 20 + offset, 0, C, offset)])
    firsts = claims.first_positions()
    assert firsts is not None
    assert firsts.payload_hashes is not None
    assert ([3, 23], [3, 3]) == (firsts.offset.tolist(), firsts.payload_hashes.tolist())


@pytest.mark.parametrize("corrects", [False, True])
def test_many_questions_are_answered_as_few_are(*, corrects: bool) -> None:
    """However often what was claimed has been put together meanwhile."""
    tasks: list[list[Row]] = [
        [(at, 1, 0, (at % 7, at), 3), (at, 2, 0, (3, 1_000), 3)] for at in range(120)
    ]
    claims = RoundClaims(view_of(run_of([(3, 3)], payload_hash=3)), corrects=corrects)
    told = [ask(claims, rows) for rows in tasks]
    assert told[0] == [NEW, NEW]
    assert told[1:] == [
        [DUPLICATE if at == 3 else NEW, DUPLICATE] for at in range(1, 120)
    ]
    assert told == [ask(claims, rows) for rows in tasks]
    assert not claims.is_overtaken


def test_what_a_question_costs_does_not_grow_with_the_number_of_questions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A batch of a thousand tasks must not search a thousand columns for each."""
    searched = 0

    def count(*columns: U64Array) -> tuple[I64Array, I64Array]:
        nonlocal searched
        searched += 1
        return find_pairs(*columns)

    monkeypatch.setattr(round_claims, "find_pairs", count)
    claims = RoundClaims(view_of())
    for at in range(200):
        searched = 0
        ask(claims, _one(at, 1, (1, at)))
        assert searched <= 32


def test_ids_that_share_the_first_word_are_told_apart_in_different_questions() -> None:
    """Nor does a question find an ID between two others of the same word."""
    claims = RoundClaims(view_of())
    for place, lo in enumerate((5, 1, 3, 9, 2, 4)):
        assert [NEW] == ask(claims, _one(place, 1, (7, lo)))
    rows: list[Row] = [(9, lo, 0, (7, lo), 3) for lo in range(11)]
    told = ask(claims, rows)
    held = {5, 1, 3, 9, 2, 4}
    assert told == [DUPLICATE if lo in held else NEW for lo in range(11)]


def test_ids_whose_slots_collide_are_told_apart() -> None:
    """A slot that is taken says only that it is worth a look."""
    base = 0xABCDEF << 40
    near = [(base + n, n) for n in range(6)]
    assert 1 == len({hi >> 42 for hi, _ in near}), "the slot is of the highest 22 bits"
    claims = RoundClaims(view_of())
    assert [NEW] * 3 == ask(claims, [(0, n, 0, near[n], 3) for n in (0, 2, 4)])
    rows: list[Row] = [(1, n, 0, near[n], 3) for n in range(6)]
    assert [DUPLICATE, NEW] * 3 == ask(claims, rows)


def test_held_ids_and_new_ones_of_one_question_keep_their_places() -> None:
    """The answers of both are put together again row by row."""
    rng = np.random.default_rng(11)
    words = rng.integers(0, 2**64, 2_000, dtype=np.uint64).tolist()
    held: BoolArray = rng.random(2_000) < 0.5
    claims = RoundClaims(view_of())
    for task in range(5):
        taken = np.flatnonzero(held)[task::5].tolist()
        ask(claims, [(task, at, at, (words[at], at), 3) for at in taken])
    rows: list[Row] = [(9, at, 5, (words[at], at), 3) for at in range(2_000)]
    assert ask(claims, rows) == [DUPLICATE if is_held else NEW for is_held in held]
    asked, _ = candidates_of(rows)
    # Who asks again for what it holds is told the bucket of its own row.
    survives = claims.ask(asked).survives
    (run,) = new_runs(claims.ask(asked), asked)
    assert (5, int((~held).sum())) == (run.bucket, len(run))
    assert int(survives.sum()) == len(run)
