"""The newest rows of each step of a batch, for people who look at a pipeline.

Like measures, samples travel with the votes and are written with the batch. So a sample
shows only published rows, never rows of an attempt that did not vote. No decision
depends on samples. The task leaves hidden fields out when it takes a sample, so hidden
values never get here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from typing import Any

from tallyweir.sinks.protocol.offsets import TopicPartition

#: Limit on rows of a step, because samples travel with every batch.
SAMPLES_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledRow:
    """One row, as text that people read.

    Attributes:
        fields: Names and values in order; None is null. Long values are cut.
        place: Partition of its record; None for a row of several events.
        offset: Offset of its record; None for a row of several events.
        reason: Reason code of a dead letter; None for other rows.
        left_out: Number of further fields, which had no room.
    """

    fields: tuple[tuple[str, str | None], ...]
    place: TopicPartition | None = None
    offset: int | None = None
    reason: str | None = None
    left_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSample:
    """The sampled rows of one step.

    Attributes:
        step: Its name in the job graph.
        output: The table of the output that the rows are for; empty for events.
        redacted: Fields, or parts of fields, that the rows have but do not show.
        rows: The newest first.
    """

    step: str
    output: str = ""
    redacted: tuple[str, ...] = ()
    rows: tuple[SampledRow, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """The samples of a task's steps, or of all tasks that voted.

    Attributes:
        limit: How many rows of a step are kept; 0 if samples are off.
        steps: Each step and output once.
    """

    limit: int = 0
    steps: tuple[StepSample, ...] = ()


NOTHING_SAMPLED = Samples()


def join_samples(samples: Iterable[Samples]) -> Samples:
    """Put together the samples of several tasks.

    No step has more rows than one task may keep. The tasks take turns, each with its
    newest rows first, so that no partition hides the others.
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
