"""The tables that ``bench full-catalog`` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def full_catalog_tables(
    figures: Mapping[str, Any],
) -> list[tuple[Sequence[str], Sequence[Sequence[object]]]]:
    """Return tables to print: rates, starts and memory with each catalog."""
    ids = f"{figures['ids']:,}"
    rows = []
    for turn, one in (*enumerate(figures["turns"], 1), ("median", figures)):
        ratio = one["ratio"]
        rows.append((turn, "none", *_columns_of(one["empty"]), "", ""))
        rows.append((turn, ids, *_columns_of(one["full"]), *ratio.values()))
    bars, ratio = figures["bars"], figures["ratio"]
    first = figures["full"]["first_batch_seconds"]
    least, most = bars["ratio_min"], bars["first_batch_seconds_max"]
    return [
        (
            (
                *("turn", "IDs", "cold events/s", "warm events/s", "first batch s"),
                *("driver's Python MB", "cold ratio", "warm ratio"),
            ),
            rows,
        ),
        (
            ("bar", "", "median"),
            [
                ("cold ratio", f"at least {least}", _held(ratio["cold"] >= least)),
                ("warm ratio", f"at least {least}", _held(ratio["warm"] >= least)),
                ("first batch", f"at most {most:.0f} s", _held(first <= most)),
            ],
        ),
    ]


def _columns_of(run: Mapping[str, float]) -> tuple[str, ...]:
    return (
        f"{run['cold_events_per_second']:,}",
        f"{run['events_per_second']:,}",
        f"{run['first_batch_seconds']:.1f}",
        f"{run['driver_bytes'] / 1e6:,.0f}",
    )


def _held(holds: bool) -> str:  # noqa: FBT001 - a cell of the table above
    return "holds" if holds else "missed"
