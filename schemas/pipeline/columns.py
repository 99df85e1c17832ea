"""Checks that the columns that a pipeline names exist in its contracts, and fit.

Columns appear in the order of ``columns_by_step``: the event's fields, the computed
columns, those of each enrichment, of a transform, and of each model. Rules see only the
fields and the computed columns, because an invalid event is a dead letter before it is
enriched. Each computed column and each enrichment sees the columns before it. Filter
and outputs see all columns, but only fields spread an output over databases. Computed
columns, rules, filters, conditions and aggregates may also read the event's topic. The
columns of a transform are known only after Spark has seen it, so until then nothing
after it is checked.
"""

from __future__ import annotations

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
from tallyweir.schemas.pipeline.events.prediction import Prediction
from tallyweir.schemas.pipeline.events.source import KAFKA_TIMESTAMP
from tallyweir.schemas.pipeline.expressions.expressions import (
    find_unknown_columns,
    reads_any,
)
from tallyweir.schemas.pipeline.outputs.pipeline_output import (
    KnownColumns,
    Output,
    check_known,
    check_new,
)
from tallyweir.schemas.schema_tree import NESTED_TYPES

# Types whose every value has one spelling in bytes, which a fingerprint needs.
_ID_TYPES = frozenset({"string", "int", "long", "uuid", "bytes", "decimal(20,0)"})
# Types of instants. A local timestamp has no zone, so it cannot be ordered.
_TIME_TYPES = frozenset({"timestamp-millis", "timestamp-micros", "timestamp-nanos"})


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
    yield from _check_events(pipeline, KnownColumns(names=known, fields=fields))
    known = [*known, *pipeline.compute]
    for index, enrichment in enumerate(pipeline.enrich):
        for problem in _check_enrichment(enrichment, known):
            yield problem.under("enrich", index)
        known = [*known, *enrichment.select]
    if pipeline.transform is not None:
        if added is None:
            return
        known = [*known, *added]
    for index, prediction in enumerate(pipeline.predict):
        for problem in _check_prediction(prediction, known):
            yield problem.under("predict", index)
        known = [*known, *prediction.new_columns]
    yield from _check_results(pipeline, KnownColumns(names=known, fields=fields))


def _check_events(pipeline: Pipeline, of_contract: KnownColumns) -> Iterator[Problem]:
    """Find the problems of what precedes enrichment."""
    for problem in _check_source(pipeline, of_contract.fields):
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


def _check_source(
    pipeline: Pipeline, fields: Sequence[ContractField]
) -> Iterator[Problem]:
    source = pipeline.source
    types = {field.name: field.type for field in fields}
    lacking = {field.name: field.lacking for field in fields}
    wanted = []
    if source.event_time != KAFKA_TIMESTAMP:
        wanted.append(("event_time", source.event_time, _TIME_TYPES, "an instant"))
    if isinstance(source.event_id, str):
        wanted.append(("event_id", source.event_id, _ID_TYPES, "an ID"))
    for key, column, fit, purpose in wanted:
        if isinstance(column, StandIn):
            continue
        if column in pipeline.compute and column not in types:
            yield Problem(
                code="PIPELINE_COLUMN_TYPE",
                at=(key,),
                saw=f"The column {column!r} is computed.",
                why=f"To be {purpose} it must be in the record: events are told apart "
                "and dated before anything is computed of them.",
                fix="Choose a field.",
            )
        elif column not in types:
            yield from check_known(column, types, (key,))
        elif types[column] not in fit:
            yield Problem(
                code="PIPELINE_COLUMN_TYPE",
                at=(key,),
                saw=f"The field {column!r} is of type {types[column]}.",
                why=f"To be {purpose} it must be one of {', '.join(sorted(fit))}.",
                fix="Choose another field, or change the contract.",
            )
        elif lacking[column]:
            yield Problem(
                code="PIPELINE_UNKNOWN_COLUMN",
                at=(key,),
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


def _check_enrichment(enrichment: Enrichment, known: list[str]) -> Iterator[Problem]:
    for column in enrichment.on:
        yield from check_known(column, known, ("on", column))
    for column in enrichment.select:
        yield from check_new(column, known, ("select", column))


def _check_prediction(prediction: Prediction, known: list[str]) -> Iterator[Problem]:
    for name, expressions in prediction.inputs.items():
        for expression in expressions:
            for problem in find_unknown_columns(expression, known):
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
