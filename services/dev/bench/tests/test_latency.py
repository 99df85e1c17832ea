"""Latencies from what was sent and what looks at the table found."""

from __future__ import annotations

import pytest

from tallyweir.services.dev.bench.latency import latencies_of
from tallyweir.sinks.protocol.errors import FatalError

_SENT = {(0, 10): 1.0, (0, 11): 1.1, (1, 5): 2.0, (0, 12): 3.0}


def test_an_event_is_visible_with_the_first_look_that_finds_it_or_a_later_one() -> None:
    """A batch is visible as a whole."""
    seen = [(0, 11, 1.5), (1, 9, 2.25), (0, 12, 3.125)]
    found = latencies_of(_SENT, seen)
    assert [500, 400, 125, 250] == pytest.approx(found.milliseconds.tolist())


def test_events_of_the_settling_are_left_out() -> None:
    """Batches of the load's size are new then."""
    seen = [(0, 11, 1.5), (1, 9, 2.25), (0, 12, 3.125)]
    found = latencies_of(_SENT, seen).between(1.5, 60.0)
    assert [125] == pytest.approx(found.milliseconds.tolist())


def test_an_event_that_was_never_seen_leaves_no_figure() -> None:
    """The slowest events must not be the ones that do not count."""
    with pytest.raises(FatalError, match="partition 0"):
        latencies_of(_SENT, [(0, 11, 1.5), (1, 9, 2.25)])


def test_each_span_of_time_has_its_own_percentiles() -> None:
    """So that a pause is seen when it was, and a span without events is left out."""
    seen = [(0, 11, 1.5), (1, 9, 2.25), (0, 12, 9.0)]
    sent = {**_SENT, (0, 12): 8.0}
    first, third = latencies_of(sent, seen).over_time(3.0)
    assert (0.0, 400, 500) == (first["second"], first["p50_ms"], first["max_ms"])
    assert (6.0, 1_000, 1_000) == (third["second"], third["p50_ms"], third["max_ms"])
