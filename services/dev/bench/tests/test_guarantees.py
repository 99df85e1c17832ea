"""What each guarantee costs is told by medians of several turns."""

from __future__ import annotations

from typing import Any

from tallyweir.services.dev.bench.guarantees import figures_of
from tallyweir.services.dev.bench.world.driver_run import Rates

_TURNS = [
    {
        "exactly_once_without_ids": Rates(cold=cold, warm=warm),
        "flink_xa_without_ids": Rates(cold=100, warm=200),
    }
    for cold, warm in ((90, 180), (120, 100), (70, 220))
]


def test_the_ratio_to_the_peer_is_the_median_over_the_turns() -> None:
    """Each of two runs that were made one right after the other."""
    figures: dict[str, Any] = figures_of(_TURNS)
    assert (0.9, 0.9) == (figures["cold_ratio"], figures["ratio"])
    ours = figures["exactly_once_without_ids"]
    assert (90, 180) == (ours["cold_events_per_second"], ours["events_per_second"])
    assert [180, 100, 220] == [one["events_per_second"] for one in ours["runs"]]


def test_without_the_peer_there_is_no_ratio() -> None:
    """And the variants have their figures all the same."""
    alone = [{"exactly_once": Rates(cold=1, warm=2)}]
    assert {"exactly_once"} == set(figures_of(alone))
