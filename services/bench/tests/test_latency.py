"""Latencies from what was sent and what looks at the table found."""

from __future__ import annotations

import pytest

from services.bench.latency import latencies_ms
from sinks.protocol.errors import FatalError

_SENT = {(0, 10): 1.0, (0, 11): 1.1, (1, 5): 2.0, (0, 12): 3.0}


def test_an_event_is_visible_with_the_first_look_that_finds_it_or_a_later_one() -> None:
    """A batch is visible as a whole."""
    seen = [(0, 11, 1.5), (1, 9, 2.25), (0, 12, 3.125)]
    found = latencies_ms(_SENT, seen, settling_s=0.0)
    assert [500, 400, 125, 250] == pytest.approx(found.tolist())


def test_events_of_the_settling_are_left_out() -> None:
    """Batches of the load's size are new then."""
    seen = [(0, 11, 1.5), (1, 9, 2.25), (0, 12, 3.125)]
    found = latencies_ms(_SENT, seen, settling_s=1.5)
    assert [125] == pytest.approx(found.tolist())


def test_an_event_that_was_never_seen_leaves_no_figure() -> None:
    """The slowest events must not be the ones that do not count."""
    with pytest.raises(FatalError, match="partition 0"):
        latencies_ms(_SENT, [(0, 11, 1.5), (1, 9, 2.25)], settling_s=0.0)
