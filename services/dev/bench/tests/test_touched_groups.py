"""The halves of a batch are shown by what each of them grows with."""

from __future__ import annotations

from services.dev.bench.touched_groups import EVENTS, by_unit
from services.dev.bench.windows import windows_tables

_MEASURED = {
    "groups": 1_000,
    "staged_rows": 4_000,
    "partial_seconds": 0.1,
    "copy_seconds": 0.02,
    "merge_seconds": 0.03,
    "opening_merge_seconds": 0.05,
    "closing_merge_seconds": 0.01,
    "merge_log_bytes": 270_000,
}


def test_each_half_is_divided_by_what_it_works_on() -> None:
    """Partials by events, the copy by rows, the merge by groups."""
    found = by_unit(_MEASURED)
    assert 0.1 * 1e6 / EVENTS == found["partial_us_per_event"]
    assert (5.0, 30.0, 270) == (
        found["copy_us_per_row"],
        found["merge_us_per_group"],
        found["merge_log_bytes_per_group"],
    )


def test_people_get_a_table_of_rates_and_one_of_halves() -> None:
    """With as many cells in a row as there are columns."""
    figures = {
        "cold_events_per_second": 86_482,
        "events_per_second": 84_558,
        "peer_cold_events_per_second": 64_669,
        "peer_events_per_second": 51_274,
        "touched_groups": [by_unit(_MEASURED)],
    }
    rates, halves = windows_tables(figures)
    assert [("tallyweir", "86,482", "84,558"), ("peer", "64,669", "51,274")] == rates[1]
    ((*row,),) = halves[1]
    assert len(halves[0]) == len(row)
    assert ["1,000", "4,000", 0.1, 0.02, 0.03] == row[:5]
