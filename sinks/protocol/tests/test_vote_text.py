"""Votes and errors as they travel through Spark."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallyweir.sinks.protocol import errors
from tallyweir.sinks.protocol.identity import Attempt
from tallyweir.sinks.protocol.measures import Measures, StepMeasure
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.samples import SampledRow, Samples, StepSample
from tallyweir.sinks.protocol.vote_text import format_failure, format_vote, parse_vote
from tallyweir.sinks.protocol.votes import (
    EventCounts,
    OutputTally,
    PartitionTally,
    Vote,
)

_whole = st.integers(0, 2**62)
#: As they are rounded.
_seconds = st.integers(0, 10**9).map(lambda us: round(us / 10**6, 6))
_rows = st.builds(
    SampledRow,
    fields=st.lists(st.tuples(st.text(), st.none() | st.text()), max_size=2).map(tuple),
    place=st.none() | st.builds(TopicPartition, topic=st.text(), partition=_whole),
    offset=st.none() | _whole,
    reason=st.none() | st.text(),
    left_out=_whole,
)
_steps = st.builds(
    StepSample,
    step=st.text(),
    output=st.text(),
    redacted=st.lists(st.text(), max_size=2).map(tuple),
    rows=st.lists(_rows, max_size=2).map(tuple),
)
_samples = st.builds(
    Samples, limit=_whole, steps=st.lists(_steps, max_size=2).map(tuple)
)
_votes = st.builds(
    Vote,
    samples=_samples,
    wanted_schemas=st.frozensets(_whole, max_size=3),
    attempt=_whole.map(Attempt),
    partitions=st.dictionaries(
        st.builds(TopicPartition, topic=st.text(), partition=_whole),
        st.builds(
            PartitionTally,
            counts=st.builds(EventCounts, read=_whole, dead=_whole, expired=_whole),
            offset_min=_whole,
            offset_max=_whole,
            event_time_max_us=st.none() | st.integers(-(2**62), 2**62),
        ),
        max_size=3,
    ),
    staged=st.dictionaries(st.text(), _whole, max_size=3),
    outputs=st.dictionaries(
        st.text(),
        st.builds(OutputTally, events=_whole, rows=_whole, late=_whole, revised=_whole),
        max_size=3,
    ),
    # A sum of offsets may pass 64 bits.
    checksum=st.integers(0, 2**80),
    buckets=st.dictionaries(st.integers(-(2**40), 2**40), st.integers(1, 2**40)),
    measures=st.builds(
        Measures,
        steps=st.dictionaries(
            st.text(),
            st.builds(StepMeasure, seconds=_seconds, rows_in=_whole, bytes=_whole),
            max_size=3,
        ),
        seconds=st.dictionaries(st.text(), _seconds, max_size=3),
        cpu_seconds=st.dictionaries(st.text(), _seconds, max_size=3),
        task_seconds=st.tuples(_seconds, _seconds),
        slots=_whole,
    ),
)


@given(vote=_votes)
def test_a_vote_survives_the_way_to_the_driver(vote: Vote) -> None:
    """Parsing gives back exactly what was formatted, on one line."""
    text = format_vote(vote)
    assert "\n" not in text
    assert vote == parse_vote(text)


@pytest.mark.parametrize(
    "kind",
    [
        errors.ConfigurationError,
        errors.RetryableError,
        errors.FencedError,
        errors.FatalError,
    ],
)
def test_a_tasks_error_arrives_as_itself(kind: type[errors.TallyweirError]) -> None:
    """The driver raises what the task stated: kind, code and all sentences."""
    stated = kind("CODE", saw="Saw “this”.\n", why="Why.", fix="Fix.")
    with pytest.raises(kind) as raised:
        parse_vote(format_failure(stated))
    assert kind is type(raised.value)
    assert ("CODE", "Saw “this”.\n", "Why.", "Fix.") == (
        raised.value.code,
        raised.value.saw,
        raised.value.why,
        raised.value.fix,
    )
