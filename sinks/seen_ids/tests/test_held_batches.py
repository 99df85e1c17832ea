"""What the holder knows of the newest batches is taken without asking the catalog."""

from __future__ import annotations

from pathlib import Path

from tallyweir.sinks.seen_ids.catalog_copy import CatalogCopy, HeldBatches
from tallyweir.sinks.seen_ids.segment import Columns
from tallyweir.sinks.seen_ids.tests.catalog import AtOnce, MemoryCatalog, Pair, run_of

_PAIRS: dict[int, Pair] = {sequence: (sequence, 1) for sequence in range(1, 7)}
_HELD = {at: Columns.of_run(run_of([pair])) for at, pair in _PAIRS.items()}


def _catalog() -> MemoryCatalog:
    catalog = MemoryCatalog()
    for sequence, pair in _PAIRS.items():
        catalog.append(sequence, [run_of([pair])])
    return catalog


def _fetched(*held: int, after: int = 0) -> tuple[list[int], int]:
    """Return the batches that come, and how many the catalog was asked for."""
    catalog = _catalog()
    source = HeldBatches({at: _HELD[at] for at in held}, catalog)
    came = source.fetch_runs(
        after_sequence=after, through_sequence=6, live_from_bucket=0
    )
    return [sequence for sequence, _ in came], catalog.fetched


def test_every_batch_comes_once_whatever_is_held() -> None:
    """And the catalog is read for those before the held ones at the end."""
    assert (list(range(1, 7)), 6) == _fetched()
    assert (list(range(1, 7)), 5) == _fetched(6)
    assert (list(range(1, 7)), 4) == _fetched(5, 6)
    assert (list(range(1, 7)), 6) == _fetched(4, 5)
    assert (list(range(1, 7)), 5) == _fetched(4, 6)
    assert ([6], 0) == _fetched(5, 6, after=5)
    assert ([], 0) == _fetched(5, 6, after=6)


def test_a_held_batch_without_ids_is_left_out() -> None:
    """It would be a segment that every question searches in vain."""
    source = HeldBatches({6: Columns.of_nothing()}, _catalog())
    asked = source.fetch_runs(after_sequence=5, through_sequence=6, live_from_bucket=0)
    assert [] == list(asked)


def test_the_copy_finds_what_was_held_and_what_was_read_and_merges_both(
    tmp_path: Path,
) -> None:
    """Until what is held has expired."""
    catalog = _catalog()
    copy = CatalogCopy(tmp_path, AtOnce())
    held = dict(_HELD)
    every = Columns.of_run(run_of(list(_PAIRS.values())))
    held[6] = Columns.of_run(run_of([_PAIRS[6]], bucket=1))
    for through, live_from in ((1, 0), (3, 0), (4, 0), (5, 0), (6, 0), (6, 1)):
        known = {at: columns for at, columns in held.items() if at > 1}
        view = copy.view(
            catalog=HeldBatches(known, catalog),
            live_from_bucket=live_from,
            through_sequence=through,
        )
        seen = [at <= through and (at == 6 or not live_from) for at in _PAIRS]
        assert seen == view.find(every.hi, every.lo).found.tolist()
    assert 1 == catalog.fetched
