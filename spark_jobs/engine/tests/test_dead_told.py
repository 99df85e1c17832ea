"""What a call says of the records that died."""

from __future__ import annotations

from tallyweir.sinks.protocol.votes import EventCounts
from tallyweir.spark_jobs.engine.program import dead_told


def test_a_call_without_dead_letters_says_nothing() -> None:
    """Also one that read nothing."""
    assert dead_told("p", EventCounts()) is None
    assert dead_told("p", EventCounts(read=2, committed=1, filtered=1)) is None
    assert not EventCounts().is_all_dead


def test_some_dead_letters_are_told_with_the_command_that_shows_why() -> None:
    """Others have become results, or were left out knowingly."""
    counts = EventCounts(read=1_002, committed=1_000, dead=1, filtered=1)
    assert not counts.is_all_dead
    told = "1 of 1,002 records are dead letters; tallyweir dead-letters list p shows "
    assert dead_told("p", counts) == f"{told}why."


def test_nothing_but_dead_letters_is_told_loudly() -> None:
    """Nobody would take it for an import."""
    counts = EventCounts(read=3, dead=3)
    assert counts.is_all_dead
    assert str(dead_told("p", counts)).startswith("NO RESULTS: all of 3 records ")
