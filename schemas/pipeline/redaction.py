"""Finds the values that are never shown: redacted fields and all derived from them.

A redacted value must not reappear under another name. So every column that is computed
or looked up from a hidden one is hidden too, as far as the pipeline's file shows it.
Columns made by the pipeline's own Python, which cannot be inspected, are hidden as soon
as any field is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from tallyweir.schemas.event_contracts import EventContracts
from tallyweir.schemas.pipeline.checks.problems import Problem, suggest
from tallyweir.schemas.pipeline.columns import columns_by_step, named_kafka_columns
from tallyweir.schemas.pipeline.definition import Pipeline
from tallyweir.schemas.pipeline.events.enrichment import Enrichment
from tallyweir.schemas.pipeline.events.kafka_columns import (
    KAFKA_HEADERS,
    KAFKA_KEY,
    is_header,
)
from tallyweir.schemas.pipeline.expressions.expressions import reads_any
from tallyweir.schemas.pipeline.outputs.pipeline_output import Output
from tallyweir.schemas.schema_tree import Mapping as MapNode
from tallyweir.schemas.schema_tree import Nullable, Record, SchemaNode, Union
from tallyweir.schemas.schema_tree import Sequence as ListNode
from tallyweir.sinks.protocol.column_names import stored_name

#: The names of a part within a column, outermost first.
Part = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Redaction:
    """The hidden parts of a pipeline's rows.

    Attributes:
        columns: Hidden columns of events.
        parts: Hidden parts of columns that are shown.
        made: Hidden columns that outputs make themselves, by table.
        keys: Tables of outputs whose keys are hidden, or have hidden parts.
    """

    columns: frozenset[str] = frozenset()
    parts: Mapping[str, tuple[Part, ...]] = field(default_factory=dict)
    made: Mapping[str, frozenset[str]] = field(default_factory=dict)
    keys: frozenset[str] = frozenset()


def find_redaction(
    pipeline: Pipeline, contracts: EventContracts, added: Sequence[str]
) -> Redaction:
    """Find everything that a pipeline hides, under the names that tables give it.

    Args:
        pipeline: The pipeline, which names the fields to hide.
        contracts: Contracts of its events.
        added: The columns that its transform adds.
    """
    named = frozenset(pipeline.monitor.redact)
    named |= _of_same_bytes(named, pipeline, contracts)
    parts: dict[str, tuple[Part, ...]] = {}
    for name in sorted(named):
        column, *part = (name,) if is_header(name) else name.split(".")
        if part and column not in named:
            parts[column] = (*parts.get(column, ()), tuple(part))
    if not named:
        return Redaction()
    hidden = {name for name in named if "." not in name or is_header(name)}
    # A value computed from a column with a hidden part may come from that part.
    for column in _computed(pipeline, added, hidden | set(parts)):
        hidden.add(column)
        parts.pop(column, None)
    touched = frozenset({*hidden, *parts})
    return Redaction(
        columns=frozenset(map(stored_name, hidden)),
        parts=parts,
        made={
            output.table: frozenset(_made(output, pipeline, named, touched))
            for output in pipeline.outputs
        },
        keys=frozenset(
            output.table
            for output in pipeline.outputs
            if touched & set(output.key_columns)
        ),
    )


def _of_same_bytes(
    named: frozenset[str], pipeline: Pipeline, contracts: EventContracts
) -> frozenset[str]:
    """Return the columns of the same key, or of the same headers, as hidden ones."""
    fields = [one.name for one in contracts.fields]
    of_kafka = {one.name for one in named_kafka_columns(pipeline, fields)}
    of_key = set() if contracts.key is None else {f.name for f in contracts.key.fields}
    touched = {name.partition(".")[0] for name in named}
    found: set[str] = set()
    if touched & {*of_key, *(of_kafka & {KAFKA_KEY})}:
        found.add(KAFKA_KEY)
    if KAFKA_KEY in named & of_kafka:
        found |= of_key
    if any(map(is_header, named)):
        found.add(KAFKA_HEADERS)
    if KAFKA_HEADERS in named & of_kafka:
        found |= set(filter(is_header, of_kafka))
    return frozenset(found & {*of_key, *of_kafka})


def find_redaction_problems(
    pipeline: Pipeline,
    contracts: EventContracts,
    added: Sequence[str] | None = None,
) -> Iterator[Problem]:
    """Find redacted fields that no row has.

    Args:
        pipeline: The pipeline.
        contracts: Contracts of its events.
        added: The columns that its transform adds, once they are known.
    """
    fields = [one.name for one in contracts.fields]
    columns = [
        *chain(*columns_by_step(pipeline, fields, added or ()).values()),
        *(one.name for one in named_kafka_columns(pipeline, fields, added or ())),
        *(name for output in pipeline.outputs for name in output.own_columns),
    ]
    may_be = [*dict.fromkeys(columns), *_parts_of(contracts)]
    is_all_known = pipeline.transform is None or added is not None
    for index, name in enumerate(pipeline.monitor.redact):
        if name in may_be or not (is_all_known or "." in name):
            continue
        yield Problem(
            code="PIPELINE_UNKNOWN_COLUMN",
            at=("monitor", "redact", index),
            saw=f"There is no field {name!r} to redact.",
            why="The field that was meant would stay visible.",
            fix=suggest(name, may_be),
        )


def _computed(
    pipeline: Pipeline, added: Sequence[str], touched: Iterable[str]
) -> Iterator[str]:
    """Yield the columns of events that derive from touched ones, in order."""
    found = set(touched)

    def spread(columns: Iterable[str]) -> Iterator[str]:
        for column in columns:
            found.add(column)
            yield column

    for name, text in pipeline.compute.items():
        if reads_any(text, found):
            yield from spread([name])
    for enrichment in pipeline.enrich:
        if found & set(_looked_up_by(enrichment, pipeline)):
            yield from spread(enrichment.select)
    if found:
        yield from spread(added)
    for prediction in pipeline.predict:
        read = (one for each in prediction.inputs.values() for one in each)
        if any(reads_any(text, found) for text in read):
            yield from spread(prediction.new_columns)


def _looked_up_by(enrichment: Enrichment, pipeline: Pipeline) -> Iterator[str]:
    yield from enrichment.on
    if enrichment.as_of is not None:
        yield pipeline.source.event_time


def _made(
    output: Output,
    pipeline: Pipeline,
    named: frozenset[str],
    touched: frozenset[str],
) -> Iterator[str]:
    """Yield the columns that an output makes itself and that are hidden."""
    yield from named & set(output.own_columns)
    yield from output.touched_columns(touched, pipeline.source.event_time)


def _parts_of(contracts: EventContracts) -> dict[str, None]:
    """Return the names of all parts of all fields, as in pipeline files."""
    names: dict[str, None] = {}

    def walk(node: SchemaNode, above: str) -> None:
        match node:
            case Nullable() | ListNode() | MapNode():
                walk(node.item, above)
            case Union():
                for branch in node.branches:
                    if branch is not None:
                        walk(branch, above)
            case Record():
                for entry in node.fields:
                    name = f"{above}.{entry.name}" if above else entry.name
                    if above:
                        names[name] = None
                    walk(entry.node, name)
            case _:
                pass

    for one in contracts.each:
        walk(one.contract.tree, "")
    return names
