"""A run whose data has no room is refused before it begins."""

from __future__ import annotations

import pytest

from tallyweir.services.dev.bench.soak.soak_world import ROWS_PER_PART, needs_of
from tallyweir.services.dev.bench.world.bench_world import check_room
from tallyweir.sinks.protocol.errors import ConfigurationError

_GIB = 1 << 30


def test_the_error_tells_what_is_free_and_what_is_needed_for_what() -> None:
    """So that somebody can make room, or ask for less."""
    needs = {"rows": 3 * _GIB, "IDs": _GIB // 2}
    with pytest.raises(ConfigurationError, match="for rows") as refused:
        check_room(3 * _GIB, needs, fix="Ask for less.")
    assert "BENCH_ROOM" == refused.value.code
    assert refused.value.saw == (
        "3.0 GiB of the disk are free; the run needs 3.5 GiB: 3.0 GiB for rows, "
        "0.5 GiB for IDs."
    )


def test_a_run_that_just_fits_is_let_in() -> None:
    """To the byte; the needs have room in them already."""
    check_room(2 * _GIB, {"rows": _GIB, "IDs": _GIB}, fix="")
    with pytest.raises(ConfigurationError):
        check_room(2 * _GIB - 1, {"rows": _GIB, "IDs": _GIB}, fix="")


def test_rows_that_are_dropped_need_the_room_of_two_parts() -> None:
    """However long the load lasts; nothing else that is needed changes."""
    kept, dropped, longer = (
        needs_of(events, rate=100_000, keeps_rows=keeps)
        for events, keeps in ((10**8, True), (10**8, False), (10**9, False))
    )
    assert 5 == kept.pop("rows") / dropped.pop("rows")
    assert kept == dropped
    assert (
        needs_of(2 * ROWS_PER_PART, rate=1, keeps_rows=True)["rows"] == longer["rows"]
    )
