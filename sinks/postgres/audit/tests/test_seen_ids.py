"""What an audit makes of the runs of one bucket."""

from __future__ import annotations

import pytest

from tallyweir.sinks.postgres.audit.checks.seen_ids import _read_bucket, _Remembered
from tallyweir.sinks.seen_ids.run import Run
from tallyweir.sinks.seen_ids.tests.catalog import Pair, run_of

A, B, C = (5, 1), (5, 2), (9, 1)


def _row(sequence: int, pairs: list[Pair]) -> dict[str, object]:
    run: Run = run_of(pairs)
    return {
        "sequence": sequence,
        "ids": len(run),
        "first": run.first,
        "last": run.last,
        "fingerprints": run.encode()[0],
        "sequences": None,
    }


@pytest.mark.parametrize(
    ("runs", "correcting", "twice"),
    [
        ([(1, [A, C]), (1, [B])], set(), 0),
        ([(1, [A, C]), (1, [A, B])], set(), 1),
        ([(1, [A, C]), (2, [A, B, C])], set(), 2),
        # A batch that corrects may keep again what was kept before it.
        ([(1, [A, C]), (2, [A, B, C])], {2}, 0),
        ([(1, [A, C]), (2, [A]), (2, [C])], {2}, 0),
        ([(1, [A]), (2, [A]), (3, [A])], {2, 3}, 0),
        # But no ID that another of its own tasks keeps.
        ([(1, [A, C]), (2, [A]), (2, [A])], {2}, 1),
        ([(2, [B]), (2, [A, B, C])], {2}, 1),
        ([(1, [A]), (2, [A]), (3, [A])], {2}, 1),
    ],
)
def test_an_id_is_twice_in_a_bucket_unless_a_later_batch_corrects_it(
    runs: list[tuple[int, list[Pair]]], correcting: set[int], twice: int
) -> None:
    """Each task of a batch adds a run of its own, and their IDs do not meet."""
    remembered = _Remembered()
    rows = [_row(sequence, pairs) for sequence, pairs in runs]
    _read_bucket(remembered, 3600, rows, correcting)
    expected = [f"{twice} IDs are twice in bucket 3600"] if twice else []
    assert expected == remembered.violations
    assert sum(len(pairs) for _, pairs in runs) == remembered.ids
