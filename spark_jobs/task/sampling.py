"""The newest rows of each step, kept by the tasks that process the rows.

A task keeps its last few rows of each step. Samples need no further job, and no other
rows of the batch go to the driver. Redacted values are left out here, before anything
leaves the task, so nothing downstream can expose them.

The text of a value is always short, and Postgres can store it whatever the row holds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from tallyweir.schemas.event_contracts import EventContracts
from tallyweir.schemas.pipeline.checks.names import RESERVED_PREFIX
from tallyweir.schemas.pipeline.columns import columns_by_step
from tallyweir.schemas.pipeline.definition import Pipeline
from tallyweir.schemas.pipeline.redaction import Redaction
from tallyweir.schemas.schema_tree import NESTED_TYPES
from tallyweir.sinks.postgres.outputs.keyed_table import KeyedTable
from tallyweir.sinks.postgres.outputs.output import Output
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.server.columns import POSITION_COLUMNS
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.samples import (
    NOTHING_SAMPLED,
    SampledRow,
    Samples,
    StepSample,
)
from tallyweir.sinks.seen_ids.ordering import BoolArray
from tallyweir.spark_jobs.source import event_columns as named
from tallyweir.spark_jobs.source.source_places import SourcePlaces
from tallyweir.spark_jobs.task.classified_events import ClassifiedEvents, EventClass

#: The fates of events that go no further, by their names in the job graph.
_ASIDE = {
    "dead": EventClass.DEAD,
    "expired": EventClass.EXPIRED,
    "filtered": EventClass.FILTERED,
    "duplicate": EventClass.DUPLICATE,
    "late": EventClass.LATE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """What tasks keep of the rows of each step.

    Attributes:
        limit: How many rows are kept of each step.
        redaction: What is hidden in these rows.
        fields: The event's fields without parts. They are decoded for a sample, whether
            or not an output reads them. Other fields are shown only if an output reads
            them.
        steps: The columns that events have after each step that they pass.
    """

    limit: int
    redaction: Redaction
    fields: tuple[str, ...]
    steps: Mapping[str, tuple[str, ...]]


def sampling_of(
    pipeline: Pipeline,
    contracts: EventContracts,
    redaction: Redaction,
    added: Sequence[str],
) -> Sampling | None:
    """Return what a pipeline's tasks keep; None if it asks for no samples.

    Args:
        pipeline: The pipeline.
        contracts: The contracts of its events.
        redaction: What it hides.
        added: The columns that its transform adds.
    """
    if not pipeline.monitor.samples:
        return None
    fields = [one.name for one in contracts.fields]
    columns: tuple[str, ...] = ()
    steps = {}
    for step, further in columns_by_step(pipeline, fields, added).items():
        columns = (*columns, *further)
        if further:
            steps[step] = columns
        if step == "compute":
            steps["validate"] = columns
            if pipeline.deduplicate is not None:
                steps["deduplicate"] = columns
    return Sampling(
        limit=pipeline.monitor.samples,
        redaction=redaction,
        fields=tuple(
            one.name for one in contracts.payload_fields if one.type not in NESTED_TYPES
        ),
        steps=steps,
    )


def sample_events(
    sampling: Sampling,
    events: ClassifiedEvents,
    is_event: BoolArray,
    contracts: EventContracts,
    places: SourcePlaces,
) -> Samples:
    """Keep a task's last events of each step, by their final fates.

    Args:
        sampling: What to keep.
        events: The task's events with their final fates; late events are marked, too.
        is_event: Which rows decode.
        contracts: The contracts to decode them by.
        places: The topics and partitions behind the frame's place numbers.
    """
    chosen = {
        step: np.flatnonzero(passed)[: -sampling.limit - 1 : -1]
        for step, passed in _passed(sampling, events, is_event).items()
    }
    rows = sorted({int(row) for each in chosen.values() for row in each})
    if not rows:
        return Samples(limit=sampling.limit)
    texts = _event_texts(sampling, events.table, contracts, rows)
    numbers = dict(zip(rows, range(len(rows)), strict=True))
    where = events.table.select([named.PLACE, named.OFFSET]).take(pa.array(rows))
    positions = [
        (places.place(place), offset)
        for place, offset in zip(*(one.to_pylist() for one in where), strict=True)
    ]

    def sampled(step: str, row: int) -> SampledRow:
        number = numbers[row]
        place, offset = positions[number]
        names = sampling.steps.get(step, sampling.steps["decode"])
        # A row that does not decode shows no fields: what to hide in it is unknown.
        found = (
            [(name, texts[name][number]) for name in names if name in texts]
            if is_event[row]
            else []
        )
        fields, left_out = fit(found)
        reason = events.reasons.get(row)
        return SampledRow(
            fields=fields,
            place=place,
            offset=offset,
            reason=reason and reason[0],
            left_out=left_out,
        )

    return Samples(
        limit=sampling.limit,
        steps=tuple(
            StepSample(
                step=step,
                redacted=_redacted(
                    sampling.redaction,
                    sampling.steps.get(step, sampling.steps["decode"]),
                ),
                rows=tuple(sampled(step, int(row)) for row in each),
            )
            for step, each in chosen.items()
            if len(each)
        ),
    )


def sample_staged(
    sampling: Sampling | None, layout: PipelineLayout, table: str, rows: pa.Table
) -> tuple[StepSample, ...]:
    """Keep the last of some rows that are about to be staged for an output.

    Args:
        sampling: What to keep; None for nothing.
        layout: The pipeline's tables.
        table: The staging table; only rows for the table of an output are kept.
        rows: The rows for that table.

    Returns:
        One sample at most.
    """
    if sampling is None or not rows.num_rows:
        return ()
    for output in layout.outputs:
        if output.staging_table == table:
            last = rows.slice(max(0, rows.num_rows - sampling.limit))
            return (_staged(sampling.redaction, output, last),)
    return ()


def sample_results(
    sampling: Sampling | None, table: KeyedTable, rows: Sequence[Mapping[str, Any]]
) -> Samples:
    """Keep the last rows that a function on keyed state has returned."""
    if sampling is None or not rows:
        return NOTHING_SAMPLED
    redaction = sampling.redaction
    hidden = redaction.made.get(table.table, frozenset())
    names = [one.name for one in (*table.key, *table.columns)]
    keys = {one.name for one in table.key}
    shown = [
        name
        for name in names
        if name not in (redaction.columns if name in keys else hidden)
    ]
    sampled = []
    for row in rows[: -sampling.limit - 1 : -1]:
        fields, left_out = fit((name, value_text(row.get(name))) for name in shown)
        sampled.append(SampledRow(fields=fields, left_out=left_out))
    step = StepSample(
        step="keys",
        output=table.table,
        redacted=tuple(name for name in names if name not in shown),
        rows=tuple(sampled),
    )
    return Samples(limit=sampling.limit, steps=(step,))


def _passed(
    sampling: Sampling, events: ClassifiedEvents, is_event: BoolArray
) -> dict[str, BoolArray]:
    """Tell for each step which events it has seen, without erased ones."""
    is_kept = ~events.is_erased()
    survived = events.is_class(EventClass.COMMITTED) | events.is_class(EventClass.LATE)
    dropped = events.is_class(EventClass.DEAD) | events.is_class(EventClass.FILTERED)
    passed = dict.fromkeys(sampling.steps, survived & is_kept)
    if "compute" in passed:
        passed["compute"] = is_event & _is_computed(events) & is_kept
    aside = {step: events.is_class(kind) & is_kept for step, kind in _ASIDE.items()}
    return {
        **passed,
        "decode": is_event & is_kept,
        "validate": ~dropped & is_kept,
        **aside,
    }


def _is_computed(events: ClassifiedEvents) -> BoolArray:
    """Tell which events have all computed columns."""
    if named.UNCOMPUTED not in events.table.column_names:
        return np.ones(len(events.classes), dtype=np.bool_)
    return np.asarray(events.array(named.UNCOMPUTED).is_null())


def _event_texts(
    sampling: Sampling, table: pa.Table, contracts: EventContracts, rows: list[int]
) -> dict[str, list[str | None]]:
    """Return the texts of some rows by column, without hidden columns."""
    redaction = sampling.redaction
    wanted = tuple(n for n in sampling.fields if n not in redaction.columns)
    taken = pa.array(rows)
    payloads = table.column(named.VALUE).chunk(0).take(taken)
    decoded = contracts.decoder(wanted).decode(payloads).columns
    texts = {name: _texts(redaction, name, column) for name, column in decoded.items()}
    known = {name for columns in sampling.steps.values() for name in columns}
    others = known - set(sampling.fields) - redaction.columns
    for name in others & set(table.column_names):
        column = table.column(name).chunk(0).take(taken)
        texts[name] = _texts(redaction, name, column)
    return texts


def _texts(redaction: Redaction, name: str, column: pa.Array) -> list[str | None]:
    hidden = redaction.parts.get(name, ())
    return [scalar_text(one, hidden) for one in column]


def _redacted(redaction: Redaction, names: Sequence[str]) -> tuple[str, ...]:
    """Name the hidden ones of some columns, and the hidden parts of the others."""
    return tuple(
        one
        for name in names
        for one in (
            [name]
            if name in redaction.columns
            else [".".join((name, *part)) for part in redaction.parts.get(name, ())]
        )
    )


def _staged(redaction: Redaction, output: Output, rows: pa.Table) -> StepSample:
    """Show rows as they are staged, the last ones first."""
    texts: dict[str, list[str | None]] = {}
    redacted: list[str] = []
    for column, shown, hidden in _staged_columns(redaction, output):
        if hidden:
            redacted.append(hidden)
            continue
        array = rows.column(column).combine_chunks()
        texts[shown] = _texts(redaction, column, array)
        redacted += _redacted(redaction, [column])
    sampled = []
    for number in reversed(range(rows.num_rows)):
        fields, left_out = fit((name, found[number]) for name, found in texts.items())
        row = SampledRow(fields=fields, left_out=left_out)
        if output.stages_events:
            topic, partition, offset = (
                rows.column(one.name)[number].as_py() for one in POSITION_COLUMNS
            )
            row = replace(row, place=TopicPartition(topic, partition), offset=offset)
        sampled.append(row)
    return StepSample(
        step="stage",
        output=output.table,
        redacted=tuple(dict.fromkeys(redacted)),
        rows=tuple(sampled),
    )


def _staged_columns(
    redaction: Redaction, output: Output
) -> Iterator[tuple[str, str, str]]:
    """Yield each column, its name for people, and what hides it (empty if shown)."""
    made = redaction.made.get(output.table, frozenset())

    for field in output.staged_fields:
        name, made_as = field.column, field.made_as
        if made_as is not None:
            yield name, field.shown, made_as if made_as in made else ""
        elif not name.startswith(RESERVED_PREFIX):
            is_hidden = name in redaction.columns or name in made
            yield name, field.shown, name if is_hidden else ""


#: Characters kept of one value. A longer value is cut, and its length is added.
VALUE_CHARS_MAX = 200
#: Characters kept of one row, names and values together; further fields are counted.
ROW_CHARS_MAX = 4_000

#: Bytes shown of a binary value; each takes two characters.
_BYTES_MAX = VALUE_CHARS_MAX // 2
_NOT_SHOWN = "(cannot be shown)"


def scalar_text(scalar: pa.Scalar, hidden: Sequence[Sequence[str]] = ()) -> str | None:
    """Write an Arrow value as text; null stays null.

    Args:
        scalar: The value.
        hidden: Paths of the parts to leave out. If there are any, the value is JSON as
            text.
    """
    try:
        value = scalar.as_py()
    except (ValueError, OverflowError, pa.ArrowException):
        # The text is invalid, or the instant is outside of Python's calendar.
        number = getattr(scalar, "value", None)
        return str(number) if isinstance(number, int) else _NOT_SHOWN
    return json_text(value, hidden) if hidden else value_text(value)


def value_text(value: object) -> str | None:
    """Write a value as text, and cut it."""
    if value is None:
        return None
    if isinstance(value, bytes | bytearray | memoryview):
        shown = bytes(value[:_BYTES_MAX]).hex()
        whole = f"\\x{shown}"
        return whole if len(value) <= _BYTES_MAX else f"{whole}… ({len(value)} bytes)"
    return _cut(_plain(value))


def json_text(text: str | None, hidden: Iterable[Sequence[str]]) -> str | None:
    """Write a nested value, which is JSON as text, without some of its parts.

    A path passes through lists and maps as if they were not there. A part is left out
    wherever the names of a path come one below the other, at any depth.

    Args:
        text: JSON; nothing is shown of text that is not JSON.
        hidden: The paths of the parts to leave out.
    """
    if text is None:
        return None
    try:
        value = json.loads(text)
        for path in hidden:
            value = _without(value, tuple(path))
    except (ValueError, RecursionError):
        return _NOT_SHOWN
    return value_text(json.dumps(value, ensure_ascii=False))


def fit(
    fields: Iterable[tuple[str, str | None]],
) -> tuple[tuple[tuple[str, str | None], ...], int]:
    """Return the fields that a sampled row has room for, and count those left out."""
    kept: list[tuple[str, str | None]] = []
    room, left_out = ROW_CHARS_MAX, 0
    for name, text in fields:
        room -= len(name) + len(text or "")
        if room < 0:
            left_out += 1
        else:
            kept.append((name, text))
    return tuple(kept), left_out


def _without(value: Any, path: tuple[str, ...]) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, list):
        return [_without(one, path) for one in value]
    if not isinstance(value, dict):
        return value
    name, *below = path
    return {
        key: _without(_without(one, tuple(below)) if key == name else one, path)
        for key, one in value.items()
        if key != name or below
    }


def _plain(value: object) -> str:
    if isinstance(value, str):
        text = value
    elif isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, datetime | date):
        text = value.isoformat()
    elif isinstance(value, dict | list | tuple):
        text = json.dumps(value, default=str, ensure_ascii=False)
    else:
        text = str(value)
    # Postgres stores neither a NUL nor half of a surrogate pair.
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def _cut(text: str) -> str:
    if len(text) <= VALUE_CHARS_MAX:
        return text
    return f"{text[:VALUE_CHARS_MAX]}… ({len(text)} characters)"
