"""What is said of the catalog's figures follows from them."""

from __future__ import annotations

from typing import Any

from tallyweir.services.dev.bench.catalog.dedup import growth, tables


def _point(ids: int, *, probe: float, append: float) -> dict[str, Any]:
    ours = {
        "probe_us": probe,
        "append_us": append,
        "first_answer_seconds": {"recent": 0.5, "of_all_ages": 7.25},
        "postgres_bytes_per_id": 24.3,
        "memory_bytes_per_id": 2.2,
        "disk_bytes_per_id": 32.0,
        "log_bytes_per_event": 25.0,
        "looked_up_share": 0.101,
        "false_positive_rate": 0.0011,
        "false_positive_rate_configured": 0.001,
    }
    return {"ids": ids, "tallyweir": ours}


_POINTS = [
    _point(10**6, probe=0.08, append=0.5),
    _point(10**7, probe=0.11, append=0.6),
    _point(10**8, probe=0.10, append=0.7),
]


def test_growth_is_from_the_smallest_size_to_the_largest() -> None:
    """Sizes between them do not count."""
    assert {"tallyweir": {"probe_us": 1.25, "append_us": 1.4}} == growth(_POINTS)


def test_the_tables_have_a_row_for_each_size() -> None:
    """The wait is the longer one."""
    costs, rooms, filters = tables({"points": _POINTS})

    assert ("1,000,000", "0.080", "0.50", "7.25") == costs[1][0]
    assert ("100,000,000", "0.100", "0.70", "7.25") == costs[1][2]
    assert ("10,000,000", "24.3", "2.2", "32.0", "25.0") == rooms[1][1]
    assert ("10,000,000", "10.100%", "0.110%", "0.100%") == filters[1][1]
    for columns, rows in (costs, rooms, filters):
        assert {len(columns)} == set(map(len, rows))
