"""Votes as text: how they travel from a task to the driver through Spark.

A task that cannot stage sends its error instead of a vote. So the driver gets the error
itself and need not read a stack trace.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

from tallyweir.sinks.protocol import errors
from tallyweir.sinks.protocol.identity import Attempt
from tallyweir.sinks.protocol.measures import (
    NOTHING_MEASURED,
    measures_json,
    parse_measures,
)
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.samples import (
    NOTHING_SAMPLED,
    parse_samples,
    samples_json,
)
from tallyweir.sinks.protocol.votes import (
    EventCounts,
    KeyedVote,
    OutputTally,
    PartitionTally,
    Vote,
)

#: Errors that a task may send, by the name of their class.
_ERRORS = {
    kind.__name__: kind
    for kind in (
        errors.ConfigurationError,
        errors.RetryableError,
        errors.FencedError,
        errors.FatalError,
    )
}


def format_vote(vote: Vote) -> str:
    """Write a vote as one line of JSON."""
    return json.dumps(
        {
            "attempt": vote.attempt,
            "partitions": [
                [
                    topic_partition.topic,
                    topic_partition.partition,
                    asdict(tally.counts),
                    tally.offset_min,
                    tally.offset_max,
                    tally.event_time_max_us,
                ]
                for topic_partition, tally in vote.partitions.items()
            ],
            "staged": dict(vote.staged),
            "outputs": {table: asdict(t) for table, t in vote.outputs.items()},
            "checksum": vote.checksum,
            "buckets": sorted(vote.buckets.items()),
            "measures": measures_json(vote.measures),
            "samples": samples_json(vote.samples),
            "wanted_schemas": sorted(vote.wanted_schemas),
        }
    )


def format_keyed_vote(vote: KeyedVote) -> str:
    """Write a vote of phase 2b as one line of JSON."""
    bare = asdict(replace(vote, measures=NOTHING_MEASURED, samples=NOTHING_SAMPLED))
    measured = {"measures": measures_json(vote.measures)}
    return json.dumps({**bare, **measured, "samples": samples_json(vote.samples)})


def parse_keyed_vote(text: str) -> KeyedVote:
    """Read what ``format_keyed_vote`` wrote.

    Raises:
        TallyweirError: The error that the task sent instead of a vote.
    """
    value = _read(text)
    measured = {"measures": parse_measures(value["measures"])}
    return KeyedVote(
        **{**value, **measured, "samples": parse_samples(value["samples"])}
    )


def format_failure(error: errors.TallyweirError) -> str:
    """Write a task's error as one line of JSON."""
    return json.dumps(
        {
            "error": type(error).__name__,
            "code": error.code,
            "saw": error.saw,
            "why": error.why,
            "fix": error.fix,
        }
    )


def parse_vote(text: str) -> Vote:
    """Read what ``format_vote`` wrote.

    Raises:
        TallyweirError: The error that the task sent instead of a vote.
    """
    value = _read(text)
    return Vote(
        attempt=Attempt(value["attempt"]),
        partitions={
            TopicPartition(topic, partition): PartitionTally(
                counts=EventCounts(**counts),
                offset_min=offset_min,
                offset_max=offset_max,
                event_time_max_us=event_time_max_us,
            )
            for (
                topic,
                partition,
                counts,
                offset_min,
                offset_max,
                event_time_max_us,
            ) in value["partitions"]
        },
        staged=value["staged"],
        outputs={
            table: OutputTally(**tally) for table, tally in value["outputs"].items()
        },
        checksum=value["checksum"],
        buckets=dict(value["buckets"]),
        measures=parse_measures(value["measures"]),
        samples=parse_samples(value["samples"]),
        wanted_schemas=frozenset(value["wanted_schemas"]),
    )


def parse_failure(text: str) -> errors.TallyweirError:
    """Read what ``format_failure`` wrote."""
    return _failure(json.loads(text))


def _failure(value: dict[str, Any]) -> errors.TallyweirError:
    return _ERRORS[value["error"]](
        value["code"], saw=value["saw"], why=value["why"], fix=value["fix"]
    )


def _read(text: str) -> dict[str, Any]:
    """Read a task's line, or raise the error that it holds."""
    value: dict[str, Any] = json.loads(text)
    if "error" in value:
        raise _failure(value)
    return value
