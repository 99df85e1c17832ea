"""What is said of the catalog's figures follows from them."""

from __future__ import annotations

from typing import Any

from tallyweir.services.dev.bench.catalog.dedup import growth


def _point(ids: int, *, probe: float, append: float) -> dict[str, Any]:
    return {"ids": ids, "probe_us": probe, "append_us": append}


_POINTS = [
    _point(10**6, probe=0.08, append=0.5),
    _point(10**7, probe=0.11, append=0.6),
    _point(10**8, probe=0.10, append=0.7),
]


def test_growth_is_from_the_smallest_size_to_the_largest() -> None:
    """Sizes between them do not count."""
    assert {"probe_us": 1.25, "append_us": 1.4} == growth(_POINTS)
