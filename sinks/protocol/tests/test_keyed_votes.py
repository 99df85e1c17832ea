"""Votes of phase 2b: added to those of phase one, or not at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tallyweir.sinks.protocol.errors import FatalError, RetryableError
from tallyweir.sinks.protocol.identity import Attempt
from tallyweir.sinks.protocol.vote_text import format_keyed_vote, parse_keyed_vote
from tallyweir.sinks.protocol.votes import (
    NOTHING_STAGED,
    BatchTally,
    KeyedVote,
    OutputTally,
    tally_keyed_votes,
)

_STAGED = BatchTally(
    partitions={},
    staged={"output_1": 5, "output_0": 2},
    outputs={"totals": OutputTally(events=5)},
    attempts=(Attempt(1), Attempt(2)),
    checksum=7,
)


def _vote(attempt: int, consumed: int, rows: int = 0) -> KeyedVote:
    return KeyedVote(
        attempt=Attempt(attempt),
        consumed={"output_1": consumed},
        staged={"output_1_rows": rows},
        rows={"totals": rows},
    )


def test_votes_add_rows_and_attempts_to_those_of_phase_one() -> None:
    """What was staged before stays voted for."""
    tally = tally_keyed_votes(
        _STAGED, [_vote(4, 3, rows=1), _vote(3, 2, rows=6)], watermark_us=90
    )
    assert (1, 2, 3, 4) == tally.attempts
    assert {"output_0": 2, "output_1": 5, "output_1_rows": 7} == tally.staged
    assert OutputTally(events=5, rows=7) == tally.outputs["totals"]
    assert (90, 7) == (tally.fired_through_us, tally.checksum)


@pytest.mark.parametrize("consumed", [4, 6, 0])
def test_events_that_are_not_those_voted_for_stop_the_batch(consumed: int) -> None:
    """A crash of the server empties staging between the phases."""
    with pytest.raises(RetryableError) as raised:
        tally_keyed_votes(_STAGED, [_vote(3, consumed)], watermark_us=None)
    assert "STAGED_ROWS_MISSING" == raised.value.code


@pytest.mark.parametrize("attempts", [(3, 3), (3, 1)])
def test_an_attempt_votes_once(attempts: tuple[int, int]) -> None:
    """In one phase, and in one of them."""
    votes = [_vote(attempts[0], 5), _vote(attempts[1], 0)]
    with pytest.raises(FatalError) as raised:
        tally_keyed_votes(_STAGED, votes, watermark_us=None)
    assert "CONSERVATION_BROKEN" == raised.value.code


def test_a_tick_has_nothing_of_phase_one() -> None:
    """Its function is called for timers, without an event."""
    tally = tally_keyed_votes(NOTHING_STAGED, [_vote(1, 0, rows=2)], watermark_us=5)
    assert ((1,), {"output_1_rows": 2}) == (tally.attempts, tally.staged)
    assert 0 == tally.counts.read


def test_a_vote_travels_as_text() -> None:
    """What a task says is what the driver reads."""
    vote = replace(_vote(9, 4), rows={"totals": 2, 'a "b"': 0})
    assert vote == parse_keyed_vote(format_keyed_vote(vote))
