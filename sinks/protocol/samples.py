"""The newest rows of each step of a batch, for people who look at a pipeline.

Like measures, samples travel with the votes and are written with the batch: a sample
is of rows that were published, never of what an attempt had in its hands that did not
vote. Nothing is decided by them. What is to be hidden is left out where a sample is
taken, so none of it is here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from typing import Any

from sinks.protocol.offsets import TopicPartition

#: More are no sample: they travel with every batch.
SAMPLES_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledRow:
    """One row, as text that people read.

    Attributes:
        fields: Names and values in order; None is null. Long values are cut.
        place: Where its record is; None for a row of several events.
        offset: The same.
        reason: Of a dead letter, its reason code.
        left_out: Fields that it has beside, for which there is no room.
    """

    fields: tuple[tuple[str, str | None], ...]
    place: TopicPartition | None = None
    offset: int | None = None
    reason: str | None = None
    left_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSample:
    """What one step shows.

    Attributes:
        step: As the job graph calls it.
        output: The table of the output that the rows are for; empty for events.
        redacted: Fields, or parts of fields, that the rows have and do not show.
        rows: The newest first.
    """

    step: str
    output: str = ""
    redacted: tuple[str, ...] = ()
    rows: tuple[SampledRow, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """What a task, or all that voted, have kept of their steps.

    Attributes:
        limit: How many rows of a step are kept; 0 if nobody asks for any.
        steps: Each step and output once.
    """

    limit: int = 0
    steps: tuple[StepSample, ...] = ()


NOTHING_SAMPLED = Samples()


def join_samples(samples: Iterable[Samples]) -> Samples:
    """Put together what several tasks have kept.

    No step has more rows than one task may keep; each task's newest come first, in
    turn, so that no partition hides the others.
    """
    given = list(samples)
    limit = max((one.limit for one in given), default=0)
    found: dict[tuple[str, str], list[StepSample]] = {}
    for step in chain.from_iterable(one.steps for one in given):
        found.setdefault((step.step, step.output), []).append(step)
    return Samples(
        limit=limit,
        steps=tuple(
            StepSample(
                step=step,
                output=output,
                redacted=tuple(
                    dict.fromkeys(name for one in each for name in one.redacted)
                ),
                rows=_in_turn([one.rows for one in each], limit),
            )
            for (step, output), each in found.items()
        ),
    )


def samples_json(samples: Samples) -> dict[str, Any]:
    """Return plain values for JSON; lists keep their order."""
    return {
        "limit": samples.limit,
        "steps": [
            {
                "step": one.step,
                "output_table": one.output,
                "redacted": list(one.redacted),
                "rows": [row_json(row) for row in one.rows],
            }
            for one in samples.steps
        ],
    }


def parse_samples(value: Mapping[str, Any]) -> Samples:
    """Read what ``samples_json`` wrote."""
    return Samples(
        limit=value["limit"],
        steps=tuple(
            StepSample(
                step=one["step"],
                output=one["output_table"],
                redacted=tuple(one["redacted"]),
                rows=tuple(map(parse_row, one["rows"])),
            )
            for one in value["steps"]
        ),
    )


def _in_turn(
    each: Sequence[tuple[SampledRow, ...]], limit: int
) -> tuple[SampledRow, ...]:
    rows = chain.from_iterable(zip_longest(*each))
    return tuple(islice((row for row in rows if row is not None), limit))


def row_json(row: SampledRow) -> dict[str, Any]:
    """Return plain values of one row for JSON."""
    return {
        "topic": None if row.place is None else row.place.topic,
        "partition": None if row.place is None else row.place.partition,
        "offset": row.offset,
        "reason": row.reason,
        "fields": [list(one) for one in row.fields],
        "left_out": row.left_out,
    }


def parse_row(value: Mapping[str, Any]) -> SampledRow:
    """Read one row of what ``samples_json`` wrote."""
    topic = value["topic"]
    return SampledRow(
        fields=tuple((name, text) for name, text in value["fields"]),
        place=None if topic is None else TopicPartition(topic, value["partition"]),
        offset=value["offset"],
        reason=value["reason"],
        left_out=value["left_out"],
    )
