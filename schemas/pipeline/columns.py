"""Checks that the columns that a pipeline names exist in its contracts, and fit.

Columns appear in the order of ``columns_by_step``: the event's fields, the computed
columns, those of each enrichment, of a transform, and of each model. Rules see only the
fields and the computed columns, because an invalid event is a dead letter before it is
enriched. Each computed column and each enrichment sees the columns before it. Filter
and outputs see all columns, but only fields spread an output over databases. The
columns of a transform are known only after Spark has seen it, so until then nothing
after it is checked.

What Kafka has of each record can be named everywhere, unless a column of the event has
that name (``kafka_columns``). Only ``named_columns`` decides which of it are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from tallyweir.schemas.contract import ContractField
from tallyweir.schemas.errors import ContractError
from tallyweir.schemas.pipeline.checks.names import check_distinct
from tallyweir.schemas.pipeline.checks.problems import (
    Path,
    Problem,
    StandIn,
    raise_if_any,
    suggest,
)
from tallyweir.schemas.pipeline.definition import Pipeline
from tallyweir.schemas.pipeline.events.enrichment import KAFKA_KEY, Enrichment
from tallyweir.schemas.pipeline.events.kafka_columns import (
    COPIED_COLUMNS,
    KAFKA_COLUMNS,
    is_header,
    kafka_columns,
)
from tallyweir.schemas.pipeline.events.prediction import Prediction
from tallyweir.schemas.pipeline.events.source import KAFKA_TIMESTAMP, HeaderId
from tallyweir.schemas.pipeline.expressions.expressions import (
    find_unknown_columns,
    inspect_expression,
    reads_any,
)
from tallyweir.schemas.pipeline.outputs.pipeline_output import (
    KnownColumns,
    Output,
    check_known,
    check_new,
)
from tallyweir.schemas.schema_tree import NESTED_TYPES
from tallyweir.sinks.protocol.column_names import stored_name

# Types whose every value has one spelling in bytes, which a fingerprint needs.
_ID_TYPES = frozenset({"string", "int", "long", "uuid", "bytes", "decimal(20,0)"})
# Types of instants. A local timestamp has no zone, so it cannot be ordered.
_TIME_TYPES = frozenset({"timestamp-millis", "timestamp-micros", "timestamp-nanos"})
# Names of columns that source.key would make.
_OF_KEY = re.compile(r"key(_.*)?")


def named_columns(pipeline: Pipeline) -> tuple[str, ...]:
    """Return all names of columns of events in a pipeline, in expressions or outside.

    Whatever Kafka has of a record is read only if it is among them.
    """
    outputs = pipeline.outputs
    expressions = [
        *pipeline.compute.values(),
        *(rule.condition for rule in pipeline.validate),
        *(text for one in pipeline.predict for text in chain(*one.inputs.values())),
        *([] if pipeline.filter is None else [pipeline.filter]),
        *(text for output in outputs for text in output.conditions.values()),
        *(text for output in outputs for _, _, text in output.arguments),
    ]
    source = pipeline.source
    return (
        # A single header is read as the ID only, and is no column.
        *(() if isinstance(source.event_id, HeaderId) else source.id_columns),
        *(name for text in expressions for name in inspect_expression(text).columns),
        *(name for one in pipeline.enrich for name in one.on),
        *(name for output in outputs for name in output.named_columns),
        *sorted(pipeline.reported.columns),
        *pipeline.monitor.redact,
    )


def named_kafka_columns(
    pipeline: Pipeline, fields: Sequence[str], added: Sequence[str] = ()
) -> tuple[ContractField, ...]:
    """Return what a pipeline reads of each record besides its payload and its key.

    Args:
        pipeline: The pipeline.
        fields: Names of the fields of its contracts.
        added: The columns that its transform adds.
    """
    steps = columns_by_step(pipeline, fields, added)
    return kafka_columns(named_columns(pipeline), list(chain(*steps.values())))


def reads_headers(pipeline: Pipeline) -> bool:
    """Tell whether a pipeline needs the headers of records."""
    names = (one.name for one in kafka_columns(named_columns(pipeline), ()))
    return isinstance(pipeline.source.event_id, HeaderId) or any(
        name not in COPIED_COLUMNS for name in names
    )


def columns_by_step(
    pipeline: Pipeline, fields: Sequence[str], added: Sequence[str] = ()
) -> Mapping[str, tuple[str, ...]]:
    """Name the columns that each step adds to an event, in the order of the steps.

    Args:
        pipeline: The pipeline.
        fields: Names of the fields of its contracts.
        added: The columns that its transform adds.
    """
    predicted = (name for one in pipeline.predict for name in one.new_columns)
    return {
        "decode": tuple(fields),
        "compute": tuple(pipeline.compute),
        "enrich": tuple(name for one in pipeline.enrich for name in one.select),
        "transform": tuple(added),
        "predict": tuple(predicted),
    }


def check_columns(
    pipeline: Pipeline,
    fields: Sequence[ContractField],
    added: Sequence[str] | None = None,
) -> None:
    """Check that a pipeline's contracts have its columns.

    Args:
        pipeline: The pipeline.
        fields: Fields of its contracts.
        added: The columns that its transform adds, once they are known.

    Raises:
        PipelineError: A column is unknown or has an unfit type, or two columns would
            have one name; the error has all these problems.
    """
    raise_if_any("Pipeline", find_column_problems(pipeline, fields, added))


def find_column_problems(
    pipeline: Pipeline,
    fields: Sequence[ContractField],
    added: Sequence[str] | None = None,
) -> Iterator[Problem]:
    """Find the problems that ``check_columns`` raises."""
    known = [field.name for field in fields]
    yield from check_distinct(known, "fields", ("source", "schema"))
    others = list(chain(*columns_by_step(pipeline, known, added or ()).values()))
    kafka = kafka_columns((*KAFKA_COLUMNS, *named_columns(pipeline)), others)
    stored = [stored_name(one.name) for one in kafka if is_header(one.name)]
    yield from check_distinct(stored, "columns", ())
    for name in stored:
        yield from check_new(name, others, ())
    of_kafka = [one.name for one in kafka]
    of_contract = KnownColumns(names=known, fields=fields, kafka=kafka)
    yield from _check_events(pipeline, of_contract)
    known = [*known, *pipeline.compute]
    for index, enrichment in enumerate(pipeline.enrich):
        for problem in _check_enrichment(enrichment, known, of_kafka):
            yield problem.under("enrich", index)
        known = [*known, *enrichment.select]
    if pipeline.transform is not None:
        if added is None:
            return
        known = [*known, *added]
    for index, prediction in enumerate(pipeline.predict):
        for problem in _check_prediction(prediction, known, of_kafka):
            yield problem.under("predict", index)
        known = [*known, *prediction.new_columns]
    all_columns = KnownColumns(names=known, fields=fields, kafka=kafka)
    yield from _check_results(pipeline, all_columns)


def _check_events(pipeline: Pipeline, of_contract: KnownColumns) -> Iterator[Problem]:
    """Find the problems of what precedes enrichment."""
    for problem in _check_source(pipeline, of_contract):
        yield problem.under("source")
    for problem in _check_compute(pipeline.compute, of_contract):
        yield problem.under("compute")
    known = replace(of_contract, names=[*of_contract.names, *pipeline.compute])
    for rule in pipeline.validate:
        for problem in known.check_expression(rule.condition):
            yield problem.under("validate", rule.reason_code)


def _check_results(pipeline: Pipeline, known: KnownColumns) -> Iterator[Problem]:
    for problem in known.check_expression(pipeline.filter):
        yield problem.under("filter")
    for index, output in enumerate(pipeline.outputs):
        found = chain(
            output.check_columns(known),
            _check_conditions(output, known),
            _check_shard_by(output, known.types),
        )
        for problem in found:
            yield problem.under("outputs", index)


def find_lookup_problems(
    enrichment: Enrichment, fields: Sequence[ContractField]
) -> Iterator[Problem]:
    """Find columns of a lookup topic that its contract does not have.

    Args:
        enrichment: An enrichment that looks up a topic.
        fields: Fields of the contract of its values.
    """
    known = [*(field.name for field in fields), KAFKA_KEY]
    for key, pairs in (("on", enrichment.on), ("select", enrichment.select)):
        for column, lookup in pairs.items():
            yield from check_known(lookup, known, (key, column))
    if enrichment.as_of is None:
        return
    as_of = enrichment.as_of
    for key, lookup in (("from", as_of.valid_from), ("until", as_of.valid_until)):
        yield from check_known(lookup, known, ("as_of", key))


def contract_problems(error: ContractError) -> Iterator[Problem]:
    """Turn the faults of a contract into problems of the pipeline that names it."""
    for one in error.faults:
        yield Problem(code=one.code, saw=one.saw, why=one.why, fix=one.fix)


def _check_source(pipeline: Pipeline, known: KnownColumns) -> Iterator[Problem]:
    source = pipeline.source
    types = known.types
    lacking = {field.name: field.lacking for field in known.fields}
    wanted: list[tuple[Path, str, frozenset[str], str]] = []
    if source.event_time != KAFKA_TIMESTAMP:
        wanted.append((("event_time",), source.event_time, _TIME_TYPES, "an instant"))
    several = isinstance(source.event_id, tuple)
    is_column = not isinstance(source.event_id, HeaderId)
    for index, column in enumerate(source.id_columns if is_column else ()):
        at: Path = ("event_id", index) if several else ("event_id",)
        wanted.append((at, column, _ID_TYPES, "an ID"))
    for at, column, fit, purpose in wanted:
        if isinstance(column, StandIn):
            continue
        if column in pipeline.compute and column not in types:
            yield Problem(
                code="PIPELINE_COLUMN_TYPE",
                at=at,
                saw=f"The column {column!r} is computed.",
                why=f"To be {purpose} it must be in the record: events are told apart "
                "and dated before anything is computed of them.",
                fix="Choose a field.",
            )
        elif column not in types and source.key is None and _OF_KEY.fullmatch(column):
            yield Problem(
                code="PIPELINE_UNKNOWN_COLUMN",
                at=at,
                saw=f"There is no column {column!r}.",
                why="Without source.key, the key of a record is nothing but bytes.",
                fix="Say how keys are written, such as key: {format: text} in source.",
            )
        elif column not in types:
            yield from check_known(column, [one.name for one in known.fields], at)
        elif types[column] not in fit:
            yield Problem(
                code="PIPELINE_COLUMN_TYPE",
                at=at,
                saw=f"The field {column!r} is of type {types[column]}.",
                why=f"To be {purpose} it must be one of {', '.join(sorted(fit))}.",
                fix="Choose another field, or change the contract.",
            )
        elif lacking.get(column):
            yield Problem(
                code="PIPELINE_UNKNOWN_COLUMN",
                at=at,
                saw=f"The field {column!r} is missing in {', '.join(lacking[column])}.",
                why="The pipeline needs it in the events of every contract.",
                fix="Choose a field that all contracts have, or add a version of the "
                "contract that gives the field this name and keeps the old name "
                "as an alias.",
            )


def _check_compute(
    compute: Mapping[str, str], known: KnownColumns
) -> Iterator[Problem]:
    """Find names that are taken, and columns that an expression cannot read."""
    names = list(known.names)
    later = set(compute)
    for name, text in compute.items():
        yield from check_new(name, names, (name,))
        later.discard(name)
        for problem in replace(known, names=[*names, *later]).check_expression(text):
            yield problem.under(name)
        if reads_any(text, later - set(names)):
            yield Problem(
                code="PIPELINE_UNKNOWN_COLUMN",
                at=(name,),
                saw=f"{text!r} reads a column that is computed after it.",
                why="Columns are computed in the order of the file.",
                fix="Move this line below the columns that it reads.",
            )
        names.append(name)


def _check_enrichment(
    enrichment: Enrichment, known: list[str], of_kafka: list[str]
) -> Iterator[Problem]:
    for column in enrichment.on:
        yield from check_known(column, [*known, *of_kafka], ("on", column))
    for column in enrichment.select:
        yield from check_new(column, known, ("select", column))


def _check_prediction(
    prediction: Prediction, known: list[str], of_kafka: list[str]
) -> Iterator[Problem]:
    for name, expressions in prediction.inputs.items():
        for expression in expressions:
            for problem in find_unknown_columns(expression, [*known, *of_kafka]):
                yield problem.under("inputs", name)
    for column in prediction.new_columns:
        yield from check_new(column, known, ("columns", column))


def _check_conditions(output: Output, known: KnownColumns) -> Iterator[Problem]:
    for at, condition in output.conditions.items():
        for problem in known.check_expression(condition):
            yield problem.under(*at)


def _check_shard_by(output: Output, types: Mapping[str, str]) -> Iterator[Problem]:
    """Find columns whose value would not choose the same database for ever.

    A looked-up column may change, in value and in type, whenever its table does.
    """
    for index, column in enumerate(output.shard_by):
        at: Path = ("shard_by", index)
        if column not in types:
            yield Problem(
                code="PIPELINE_UNKNOWN_COLUMN",
                at=at,
                saw=f"The event has no field {column!r}.",
                why="Only a field of the event assigns a row to the same place every "
                "time.",
                fix=suggest(column, types),
            )
        elif types[column] in NESTED_TYPES:
            yield Problem(
                code="PIPELINE_COLUMN_TYPE",
                at=at,
                saw=f"The field {column!r} is of type {types[column]}.",
                why="Rows can be distributed by simple values only.",
                fix="Choose another field.",
            )
